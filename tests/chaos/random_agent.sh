outcome= slots= heads= pace=0
if test "$RUNPLAN_PHASE" = all; then RUNPLAN_PHASE=1; fi # the verifier of all phases
. "phases/$RUNPLAN_PHASE"
test ! -e "$HOME/mended" || outcome=passes
own=$RUNPLAN_PHASE.txt
sleep "$pace"
case $RUNPLAN_ROLE in
implement | fix)
    body=good
    case $RUNPLAN_ROLE,$outcome in
    implement,rejected) body=bad ;;
    implement,red) body=red ;;
    *,hopeless) body="bad$(cat "$own" 2>/dev/null)" ;;
    *,ever-red) body="red$(cat "$own" 2>/dev/null)" ;;
    *,empty) exit ;;
    implement,strays) echo stray >stray.txt ;;
    fix,strays) rm -f stray.txt ;;
    esac
    echo "$body" >"$own"
    for file in $slots; do sed -i "s/^slot $RUNPLAN_PHASE:.*/slot $RUNPLAN_PHASE: $body/" "$file"; done
    for file in $heads; do sed -i "1s/.*/head: $RUNPLAN_PHASE $body/" "$file"; done
    test "$outcome" != fails || exit 1
    if test "$outcome" = picky && grep -qsE "bad|red" [0-9].txt; then exit 1; fi
    case $RUNPLAN_PHASE in *[13]) git add -A . && git commit -qm "Write $RUNPLAN_PHASE" || : ;; esac
    ;;
verify)
    result=pass
    ! grep -qs bad "$own" || result=fail
    answer="{\"item\": \"\1\", \"result\": \"$result\", \"evidence\": \"$own:1\"}"
    items=$(sed -n "/^## Items/,/^## [^I]/s/^- \([A-Z]*[0-9]*\): .*/$answer/p" "$RUNPLAN_PROMPT" | paste -sd,)
    echo "{\"status\": \"done\", \"summary\": \"Looked.\", \"items\": [$items]}" >"$RUNPLAN_RETURN"
    ;;
esac
