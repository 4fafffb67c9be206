"""Which doing belongs to which action: the whole table."""

from __future__ import annotations

from runplan.run import actions as a
from runplan.steps import (
    budget as pausing,
    candidate as building,
    candidate as undoing,
    finish as finishing,
    finish as handing,
    judge as judging,
    land as landing,
    lease,
    read_plan as reading,
    start as starting,
    watch as watching,
    work,
)
from runplan.steps.context import Doing

DOINGS: dict[type[a.Action], Doing] = {
    a.ReadPlan: Doing(do=reading.read_plan),
    a.Lease: Doing(do=lease.lease),
    a.Start: Doing(do=starting.start, observe=starting.observe),
    a.Await: Doing(do=watching.await_end),
    a.Sleep: Doing(do=pausing.sleep),
    a.HandOver: Doing(do=handing.hand_over),
    a.TakeWork: Doing(do=work.take_work),
    a.JudgeBaseline: Doing(do=judging.judge_baseline),
    a.JudgeGate: Doing(do=judging.judge_gate),
    a.JudgeVerdict: Doing(do=judging.judge_verdict),
    a.BuildCandidate: Doing(do=building.build_candidate),
    a.BuildUndo: Doing(do=undoing.build_undo),
    a.RebuildBranch: Doing(do=lease.rebuild_branch),
    a.Ask: Doing(do=landing.ask),
    a.Land: Doing(do=landing.land, observe=landing.observe),
    a.End: Doing(do=watching.end),
    a.Fail: Doing(do=finishing.fail),
    a.CleanUp: Doing(do=finishing.clean_up),
    a.Finish: Doing(do=finishing.finish),
}
