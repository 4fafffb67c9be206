# Fills a worktree. Arguments: git directory, tree, seen, commit of the files, commit of the index, how, clean, diff,
# root of the checkout, the user's modules, then the names of run.copy. `seen` keeps what only this script opens: the
# index and its commit, the paths that have to change where all others are known, and lists of files that are not
# converted yet. `how` is agent, proof, or setup for a proof worktree with the products of run.setup.

# A function of the fill script: checks out the submodules that the user has, without a network. Arguments: git
# directory, worktree, commit, the user's modules. An agent's files in a submodule stay.
fill_modules() {
    git --git-dir="$1" config --blob "$3:.gitmodules" --name-only --get-regexp '^submodule\..*\.path$' 2>/dev/null |
    while IFS= read -r key; do
        name=${key#submodule.} name=${name%.path}
        path=$(git --git-dir="$1" config --blob "$3:.gitmodules" "$key")
        own=$1/modules/$name index=$seen/modules/$name theirs=$4/$name
        oid=$(git --git-dir="$1" rev-parse -q --verify "$3:$path") && [ -d "$theirs" ] &&
            git --git-dir="$theirs" cat-file -e "$oid^{commit}" 2>/dev/null || continue
        [ ! -L "$2/$path" ] || rm "$2/$path" || exit 1
        mkdir -p "$2/$path" "$own/objects/info" "$own/refs" "$index" && cd "$2/$path" || exit 1
        [ "$(pwd -P)" = "$(cd "$2" && pwd -P)/$path" ] || exit 1 # a parent is a link
        rm -rf .git || exit 1
        update=-u
        [ "$how" = proof ] || is_empty || update=
        format=0; [ ${#oid} = 40 ] || format="1
[extensions]
objectformat = sha256"
        printf '[core]\nbare = false\nrepositoryformatversion = %s\n' "$format" >"$own/config" &&
            printf '%s\n' "$theirs/objects" >"$own/objects/info/alternates" &&
            printf '%s\n' "$oid" >"$own/HEAD" && printf 'gitdir: %s\n' "$own" >.git || exit 1
        (
            export GIT_DIR="$own" GIT_WORK_TREE="$2/$path" GIT_INDEX_FILE="$index/index"
            export GIT_CONFIG_COUNT=0 GIT_CONFIG_GLOBAL="${config:-$GIT_CONFIG_GLOBAL}" # its filters are the user's
            git read-tree --reset $update "$oid" && cp -p "$index/index" "$own/index" || exit 1
            [ "$how" != proof ] || git clean -ffdqx
        ) && fill_modules "$own" "$2/$path" "$oid" "$theirs/modules" || exit 1
    done
}

ulimit -v "$SCRIPT_KIB" 2>/dev/null
umask 022
dir=$1 tree=$2 seen=$3 files=$4 tip=$5 how=$6 clean=$7 diff=$8 root=$9; shift 9
modules=$1; shift
export seen GIT_DIR="$dir" GIT_WORK_TREE="$tree" GIT_INDEX_FILE="$seen/index"
cd "$tree" || exit 1
if is_empty; then clean=none; rm -f "$seen/$PATHS"; fi
for list in "$seen"/list.*; do
    [ ! -f "$list" ] || { git update-index -z --force-remove --stdin <"$list" && rm -f "$list" "$seen/$PATHS"; } ||
        exit 1
done
rm -rf .git "./$DIFF_FILE" "$dir/index" "$dir/index.lock" "$seen/index.lock" || exit 1
printf 'gitdir: %s\n' "$dir" >.git && : >"$seen/commit" || exit 1
update_paths() {
    [ -f "$seen/$PATHS" ] || return 1
    [ ! -s "$seen/$PATHS" ] || GIT_LITERAL_PATHSPECS=1 git restore -q --source="$files" --staged --worktree \
        --pathspec-from-file="$seen/$PATHS" --pathspec-file-nul
}
# git overlooks FIFOs, modes and further links
if [ "$how" = proof ] && [ "$clean" = -x ] && [ -f "$seen/index" ] && [ ! -f "$seen/$PATHS" ]; then
    find . \( \( ! -type f ! -type d ! -type l -o -type f -links +1 \
        -o -type f ! -perm 644 ! -perm 755 \) -delete \) -o -type d ! -perm 755 -exec chmod 755 {} + || exit 1
fi
update_paths || git read-tree --reset -u "$files" || {
    find . -type d ! -perm -700 -exec chmod u+rwx {} \; # the products of run.setup stay
    rm -f "$seen/index"; git read-tree --reset -u "$files"
} || exit 1
if [ "$clean" != none ]; then
    git clean -ffdq $clean || { chmod -R u+rwX . && git clean -ffdq $clean; } || exit 1
fi
[ "$how" = setup ] || [ ! -d "$modules" ] || fill_modules "$dir" "$tree" "$files" "$modules" || exit 1
[ "$files" = "$tip" ] || git read-tree --reset "$tip" || exit 1
cp -p "$seen/index" "$dir/index" || exit 1 # -p: git looks for racy entries
printf '%s\n' "$tip" >"$seen/commit" || exit 1
[ -z "$diff" ] || { rm -rf "./$DIFF_FILE" && cp "$diff" "./$DIFF_FILE"; } || exit 1
for name; do
    mkdir -p "./$(dirname "$name")" && rm -rf "./$name" && cp -p "$root/$name" "./$name" || exit 1
done
