# Ends containers. Arguments: engine, host, a filter.
engine=$1 host=$2
for id in $("$engine" ${host:+-H "$host"} ps -aq --filter "$3"); do
    "$engine" ${host:+-H "$host"} kill "$id"
    "$engine" ${host:+-H "$host"} rm -f "$id"
done >/dev/null 2>&1
