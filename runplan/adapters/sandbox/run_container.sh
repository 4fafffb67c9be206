# Runs the engine. Arguments: engine, host, and a folder for FIFOs; the place and the copy of each directory that is
# copied; "--", and the further words of `run`. The container gets the variables of this process, except for those that
# describe this machine. A log is a FIFO in it, since not every engine passes descriptors on.
engine=$1 host=$2 folder=$3; shift 3
while [ "$1" != -- ]; do
    command -p mkdir -p "$2" && command -p cp -a "$1/." "$2" || exit 1
    shift 2
done
shift
names=$(command -p env | command -p sed -n '/^PATH=/d; /^SHELL=/d; /^TMPDIR=/d; /^HOSTNAME=/d; /^PWD=/d; /^OLDPWD=/d
    /^SHLVL=/d; /^_=/d; /^LD_/d; /^XDG_/d; /^RUNPLAN_LOGS=/d; s/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/--env=\1/p')
[ -n "$RUNPLAN_LOGS" ] || exec "$engine" ${host:+-H "$host"} run $names "$@"
number=0 inside=
for log in $RUNPLAN_LOGS; do
    number=$((number + 1)) inside="${inside:+$inside }/run/log-$number"
    command -p mkfifo "$folder/$number" || exit 1
    command -p cat "$folder/$number" >"$log" &
    set -- "--volume=$folder/$number:/run/log-$number" "$@"
done
"$engine" ${host:+-H "$host"} run $names --env="RUNPLAN_LOGS=$inside" "$@"
code=$?
while [ "$number" -gt 0 ]; do : <>"$folder/$number"; number=$((number - 1)); done # one that nobody has opened
wait
exit $code
