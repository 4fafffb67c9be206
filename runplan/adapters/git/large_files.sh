# Writes large files. Arguments: two git directories that may have them, then name and size of each. A file that is
# not there is a line with 0.
one=$1 two=$2; shift 2
while [ $# -gt 0 ]; do
    file=$one/$1; [ -f "$file" ] || file=$two/$1
    if [ -f "$file" ]; then echo 1; head -c "$2" "$file"; else echo 0; fi
    shift 2
done
