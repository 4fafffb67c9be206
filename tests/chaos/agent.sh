. ./stage.sh
add_line() { test -e "$1" && grep -qx "$2" "$1" || echo "$2" >>"$1"; }
case $RUNPLAN_ROLE in
implement | fix)
    exec 9>"$HOME/at/lock.$RUNPLAN_PHASE"
    flock -n 9 || : >"$HOME/at/doubled.$RUNPLAN_PHASE"
    echo "$RUNPLAN_PHASE" >"$RUNPLAN_PHASE.txt"
    grep -q "^Touches:" plans/X.md || add_line all.txt "phase $RUNPLAN_PHASE"
    test "$RUNPLAN_ROLE" = implement || echo mended >mended.txt
    test ! -e pace || sleep "$(cat pace)"
    stage written
    if test -e asks && ! grep -q "begin of answer" "$RUNPLAN_PROMPT"; then echo "BLOCKER: go on?"; exit; fi
    test "$RUNPLAN_PHASE" = 2 || { git add -A . && git commit -qm "Write $RUNPLAN_PHASE by $RUNPLAN_ROLE" >/dev/null; }
    stage committed
    if test -e "$HOME/hold/fail"; then git update-ref refs/heads/stray HEAD; exit 1; fi
    ;;
verify)
    changed=$(sed -n "s,^+++ b/,,p" .runplan.diff | head -n 1)
    passed='{"item": "\1", "result": "pass", "evidence": "'$changed'"}'
    items=$(sed -n "/^## Items/,/^## [^I]/s#^- \([A-Z]*[0-9]*\): .*#$passed#p" "$RUNPLAN_PROMPT" | paste -sd,)
    echo "{\"status\": \"done\", \"summary\": \"Looked.\", \"items\": [$items]}" >"$RUNPLAN_RETURN"
    ;;
try)
    stage served
    found='"it has to be mended"'
    test ! -e mended.txt || found=
    echo "{\"status\": \"done\", \"findings\": [$found], \"artifacts\": [\"seen.txt\"]}" >"$RUNPLAN_RETURN"
    cp 1.txt "${RUNPLAN_RETURN%/*}/seen.txt"
    ;;
*)
    if test -e "answers/$RUNPLAN_ROLE.json"; then cp "answers/$RUNPLAN_ROLE.json" "$RUNPLAN_RETURN"
    else
        echo '````markdown'
        sed -e '/^Execution: plan-first$/d' plans/X.md \
            | sed "s/^- \[ \] Write 2.txt$/&\n\n### Acceptance Criteria\n\n- [ ] \`test -e 2.txt\`/"
        echo '````'
    fi
    stage written
    ;;
esac
