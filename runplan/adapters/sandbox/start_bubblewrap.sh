# Hides sockets, makes layers, then executes bubblewrap. Arguments: rules of seccomp, an empty file, the sockets, "--";
# for layers their directory, overlay or copy, the number and the directory below each; "--", the program and its
# arguments. A descriptor that is open is a log.
rules=$1 empty=$2; shift 2
while [ "$1" != -- ]; do
    command -p mount --bind "$empty" "$1" 2>/dev/null
    shift
done
shift
[ "$1" = -- ] || { place=$1 how=$2; shift 2; }
while [ "$1" != -- ]; do
    command -p mkdir -p "$place/$1" && cd "$place/$1" && command -p mkdir upper work merged || exit 1
    command -p ln -s "$2" lower || exit 1
    { [ "$how" = overlay ] && command -p mount -t overlay overlay \
        -o lowerdir=lower,upperdir=upper,workdir=work,userxattr merged 2>/dev/null; } ||
        command -p cp -a lower/. merged || exit 1
    shift 2
done
program=$2; shift 2
for number in 3 4 5 6 7 8 9; do [ -e "/proc/self/fd/$number" ] || break; done
eval 'exec '$number'<"$rules"' && cd / && exec "$program" --seccomp "$number" "$@"
