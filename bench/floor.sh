#!/bin/sh
# The floor: what a person would script by hand, a fresh worktree for each phase and nothing proven.
# usage: floor.sh REPOSITORY WORKTREES PHASES
set -eu
cd "$1"
phase=1
while [ "$phase" -le "$3" ]; do
    tree="$2/phase-$phase"
    git worktree add -q -b "floor/$phase" "$tree" main
    (cd "$tree" && echo "$phase" >>work.txt && git add work.txt && git commit -q -m "Phase $phase")
    true
    sed -i "s/^| $phase .*/| $phase — Step $phase | ✅ Done | | |/" plans/X.md
    git commit -q -m "Mark phase $phase" -- plans/X.md
    mkdir -p reports
    echo "## Phase $phase" >>reports/floor.md
    git add reports/floor.md
    git commit -q -m "Report phase $phase"
    git cherry-pick "floor/$phase" >/dev/null
    git worktree remove "$tree"
    git branch -q -D "floor/$phase"
    phase=$((phase + 1))
done
