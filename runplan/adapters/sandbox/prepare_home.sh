# Makes links (ln) and copies (cp) that are not there, then executes a command. An empty file is an old mount point; a
# link to nothing leads to what was updated. The first argument is a home, or "": the files there were left by set-up,
# and are removed.
[ -z "$1" ] || command -p find "$1" -maxdepth 1 ! -type d -delete 2>/dev/null
shift
while [ "$1" != -- ]; do
    [ -d "$3" ] || [ -s "$3" ] || [ ! -e "$2" ] || { mkdir -p "${3%/*}" && $1 "$2" "$3"; }
    shift 3
done 2>/dev/null
shift
exec "$@"
