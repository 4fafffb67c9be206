# Hands an agent's work over. Arguments: the agent's git directory, its tree, a fresh git directory, seen, branch,
# commit before, what to read, most new paths, then commits that runplan has. `all` reads refs and files, `files` only
# files, and `raw` only files and without any conversion. The agent's configuration is not read: `lane` has links to
# its refs.

read_tree() {
    if [ -f "$fresh/index" ]; then # a commit of few objects may have millions of paths
        most=$((most + $(wc -c <"$fresh/index") / 64)) # an entry of the index has more bytes
        [ "$(git ls-tree -r --name-only "$head" | head -n "$((most + 1))" | wc -l)" -le "$most" ] || exit "$BOMB"
    fi
    git read-tree --reset "$head" || exit 5
}
ulimit -v "$SCRIPT_KIB" 2>/dev/null
exec 3>&1 1>&2
theirs=$1 tree=$2 fresh=$3 seen=$4 branch=$5 before=$6 how=$7 most=$8; shift 8
head=$before own=$before others= listed=
if [ "$how" = all ]; then
    export GIT_COMMON_DIR="$fresh/lane"
    refs=$(git --git-dir="$theirs" show-ref --head) || refs=$( # its HEAD, or a ref, is damaged
        git --git-dir="${theirs%/worktrees/*}" for-each-ref --format='%(objectname) %(refname)') || exit "$NO_REFS"
    unset GIT_COMMON_DIR
    head= own=
    while read -r oid ref; do
        case $ref in
        HEAD) head=$oid ;;
        "$branch") own=$oid ;;
        refs/tags/* | refs/remotes/* | '') ;;
        *) others="$others$oid
" listed="${listed}ref $oid $ref
" ;;
        esac
    done <<END
$refs
END
    [ -n "$own" ] || own=$before
    [ -n "$head" ] || head=$own
fi
export GIT_DIR="$fresh"
add=0 left=
if cd "$tree" 2>/dev/null && ! is_empty; then # in a sandbox `git worktree remove` leaves an empty directory
    export GIT_WORK_TREE="$tree" # git requires that its parent is there
    [ "$how" = all ] || find . ! -type f ! -type d ! -type l -delete # git waits for ever for a FIFO
    if [ "$how" = all ] && [ -f "$seen/index" ]; then cp -p "$seen/index" "$fresh/index" || exit 5; fi
    commit= is_updated=
    [ ! -f "$seen/commit" ] || read -r commit <"$seen/commit"
    if [ -f "$fresh/index" ] && [ "$commit" != "$head" ]; then
        # Where a commit has too many paths for that, read_tree counts them.
        [ -n "$commit" ] && (
            ulimit -d "$DIFF_KIB" 2>/dev/null
            git diff-tree -r --no-renames "$commit" "$head" >"$fresh/changes"
        ) && cut -f2- "$fresh/changes" | git update-index --add --remove --replace --info-only --stdin &&
            is_updated=yes || read_tree
    fi
    [ -f "$fresh/index" ] || read_tree
    printf '%s\n' "$head" >"$fresh/HEAD"
    # With a lock git writes the index again; else `add` would store every file that is as young as the index.
    export GIT_OPTIONAL_LOCKS=1
    state=$({ git status --porcelain -unormal --ignored=matching --no-renames --ignore-submodules=dirty || echo 1
    } 3>&- | { read -r line && echo "$line"; })
    left=$CLEAN
    case $state in
    '') listed="${listed}$NOTHING_ELSE
" ;;
    '!!'*) state= ;; # only ignored files; git lists them last
    esac
    if [ -n "$state" ]; then
        [ -z "$is_updated" ] || read_tree
        git -c advice.addEmbeddedRepo=false add -A --ignore-errors . 3>&- || add=$?
        left=$(git write-tree) || exit 6
    fi
fi
header="head $head
own $own
add $add
left $left
$listed"
printf 'runplan1 %06d\n%s' "${#header}" "$header" >&3
printf '%s\n' "$head" "$own" ${left#$CLEAN} $others "^$before" "$@" |
    git pack-objects --revs --thin --stdout --delta-base-offset -q >&3
