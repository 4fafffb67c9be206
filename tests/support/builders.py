"""Plans, settings, journals, metrics and random runs for unit tests."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from runplan.adapters.configuration.load import Layer, LoadedSettings, merge_layers
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import LandingRefused, TrialJudged
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Beginning, GateAnswer, Mode, ProofKind, Reason, Role
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import RunState
from runplan.domain.settings.schema import AgentsSettings, CheckSettings, RunSettings, Settings
from runplan.domain.times import iso

Choose = Callable[[Sequence[str]], str]


def tracker(*rows: str, header: str = "| Phase | Status | Commit | Notes |") -> str:
    """A tracker of the given rows."""
    return "\n".join(["## Progress Tracker", "", header, "|---|---|---|---|", *rows, "", ""])


def a_plan(cells: dict[str, str], bodies: dict[str, str] | None = None, *, front: str = "") -> bytes:
    """A tracker plan: phase id to status cell, and what stands in the phases."""
    rows = [f"| {id_} — Phase {id_} | {status} | | |" for id_, status in cells.items()]
    sections = [f"## Phase {id_} — Title {id_}\n\n{(bodies or {}).get(id_, 'Text.')}\n\n" for id_ in cells]
    return (front + "# Plan: A plan\n\n" + tracker(*rows) + "".join(sections)).encode()


def waiting(dependencies: str, *, own: str = "9", others: str = "1 2 3 3a 4 5") -> bytes:
    """A plan whose last phase has the given Dependencies."""
    cells = dict.fromkeys([*others.split(), own], "⬚")
    return a_plan(cells, {own: f"### Dependencies\n\n{dependencies}\n"})


def settle(layers: Sequence[Layer]) -> LoadedSettings:
    """The layers over the defaults, with the agents there are."""
    return merge_layers(layers)


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(
    store: SqliteStore,
    run: str,
    plan: str,
    *events: tuple[str, dict[str, Any]],
    now: datetime = NOW,
    owner: str = "me",
    **row: Any,
) -> None:
    """A run with these events, one a minute, the last a minute ago."""
    with store.transaction():
        fence = store.set_claim("plan", plan, run=run, owner=owner)
    shown = RunRow(
        **{
            "id": run,
            "plan": plan,
            "started": iso(now),
            "state": "running",
            "phase": "1",
            "step": "implement",
            "since": iso(now),
            "landing": "cherry-pick",
            **row,
        }
    )
    rows = [
        (iso(now - timedelta(minutes=len(events) - number)), kind, json.dumps(body))
        for number, (kind, body) in enumerate(events)
    ]
    store.append(rows, shown, fence=fence)


_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"


_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'


_LINE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL},?)*)\}})? (\S+)")


_HEAD = re.compile(rf"# (?:HELP {_NAME} [^\n]*|TYPE {_NAME} (?:counter|gauge))")


def read(text: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of every line; a line that means nothing is an error."""
    assert not text or text.endswith("\n")
    found = []
    for line in text.split("\n")[:-1]:
        if line.startswith("#"):
            assert _HEAD.fullmatch(line), line
            continue
        match = _LINE.fullmatch(line)
        assert match, line
        labels = {name: _unescaped(value) for name, value in re.findall(_LABEL, match[2] or "")}
        found.append((match[1], labels, float(match[5])))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r'\\(["\\n])', lambda match: {"n": "\n"}.get(match[1], match[1]), text)


#: The section of each setting that tests of the rules change.
_SECTIONS = {
    **dict.fromkeys(("max_fix_cycles", "setup", "parallel", "pipeline", "sign_off"), "run"),
    **dict.fromkeys(("prove", "changed"), "tests"),
    "verifiers": "agents",
    "planner": "agents",
    "claim": "issues",
    "replan": "plan",
}


def keep(begun: e.RunStarted, **values: Any) -> e.RunStarted:
    """The run with other fields and settings; of gates and trial the whole sections."""
    fields = dict[str, Any]()
    settings = begun.kept
    for name, value in values.items():
        section = _SECTIONS.get(name)
        if section is not None:
            settings = replace(settings, **{section: replace(getattr(settings, section), **{name: value})})
        elif name in ("gates", "trial"):
            settings = replace(settings, **{name: value})
        else:
            fields[name] = value
    return replace(begun, settings=settings, **fields)


def started(
    mode: str = "finish", *, wanted: str = "", auto: bool = True, test_command: str = "make test", setup: str = ""
) -> e.RunStarted:
    return e.RunStarted(
        plan="plans/x.md",
        title="X",
        mode=Mode(mode),
        wanted=wanted,
        auto=auto,
        landing="cherry-pick",
        target="main",
        slug="x",
        settings=Settings(
            run=RunSettings(setup=setup),
            agents=AgentsSettings(verifier=""),  # a verifier that the run does not name
            tests=CheckSettings(command=test_command),
        ),
    )


def _running(state: RunState) -> tuple[str, str]:
    dispatch = state.work.dispatches.running
    assert dispatch is not None
    return dispatch.id, dispatch.role


def _checked(phase: WorkAttempt) -> tuple[str, ...]:
    """The checks of the dispatch that ended."""
    newest = phase.dispatches.newest if phase.dispatches.ended else None
    return (newest.gates if newest else ()) or ("tests",)


class Chance:
    """`choose` picks one of the answers; what it picks is the whole difference between two worlds."""

    def __init__(self, choose: Choose, *, phases: int = 2) -> None:
        self._choose = choose
        self._left = phases
        self._number = 0
        self._marked = False  # a plan that was marked complete stays so

    def _new(self, word: str) -> str:
        self._number += 1
        return f"{word}{self._number}"

    def answer(self, action: a.Action, state: RunState) -> list[e.Event]:
        match action:
            case a.Action(step="read-plan"):
                return [self._read()]
            case a.Action(step="lease"):
                return [self._lease(state)]
            case a.Start(dispatch=wanted):
                if wanted.role == "baseline" and self._choose(["new", "known"]) == "known":
                    return [e.BaselineKnown(key="k", tree=wanted.tree, results="", name=name) for name in wanted.gates]
                return [replace(wanted, id=self._new("d"), agent="robot")]
            case a.Action(step="await"):
                return self._end(*_running(state))
            case a.Action(step="end"):
                name, role = _running(state)
                return [e.DispatchEnded(id=name, role=Role(role), ending=Ending.ENDED, code=None)]
            case _:
                return self._judge(action, state)

    def _read(self) -> e.Event:
        if self._marked:
            return e.NoWork(tip=self._new("c"), kind=NoWorkKind.COMPLETE)
        if self._left == 0:
            choice = self._choose(["all-done", "complete", "blocked"])
            if choice == "all-done":
                return e.CompletionChosen(tip=self._new("c"))
            return e.NoWork(tip=self._new("c"), kind=NoWorkKind(choice))
        if self._choose(["next", "next", "next", "blocked"]) == "blocked":
            return e.NoWork(tip=self._new("c"), detail="phase 1 is blocked", kind=NoWorkKind.BLOCKED)
        self._left -= 1
        return e.PhaseChosen(tip=self._new("c"), phase=self._new("p"), items=(("W1", "x"),))

    def _lease(self, state: RunState) -> e.Event:
        if self._choose(["fine", "fine", "fine", "refused"]) == "refused":
            return e.WorkRefused(reason=Reason.BLOCKED, detail="the branch exists")
        phase = state.attempt.chosen.phase if state.attempt else ""
        branch = f"refs/heads/{phase}"
        lease = e.Leased(phase=phase, branch=branch, base="c0", base_tree="t0", worktree="w", attempt=1)
        beginning = Beginning(self._choose([*[Beginning.ANEW] * 3, Beginning.PROVE, Beginning.FIX, Beginning.CONTINUE]))
        if beginning is Beginning.ANEW:
            return lease
        return replace(lease, kept=e.KeptWork(ref="b", head="c1", tree=self._new("t"), base="c0", beginning=beginning))

    def _end(self, name: str, role: str) -> list[e.Event]:
        ending = self._choose(
            ["exited"] * 6 + ["timeout", "silent", "missing", "signalled", "lost", "ended", "running"]
        )
        if ending == "running":
            return []
        guard = self._choose(["none", "none", "none", "warned", "violated"]) if role in ("implement", "fix") else "none"
        found: list[e.Event] = (
            [] if guard == "none" else [e.GuardFound(violated=guard == "violated", lines=("the agent changed x",))]
        )
        said = self._choose(["", "done", "blocked", "failed"]) if role in ("implement", "fix") else ""
        code = int(self._choose(["0", "0", "0", "1"])) if ending == "exited" else None
        kinds = {"signalled": "killed", "silent": "silent", "timeout": "timed-out"}
        kind = kinds.get(ending, "crashed" if code else "") if role in ("implement", "fix", "verify") else ""
        return [
            *found,
            e.DispatchEnded(id=name, role=Role(role), ending=Ending(ending), code=code, said=said, kind=kind),
        ]

    def _judge(self, action: a.Action, state: RunState) -> list[e.Event]:
        match action:
            case a.Action(step="take-work"):
                match self._choose(["fine", "fine", "fine", "broken", "refused"]):
                    case "refused":
                        return [e.WorkRefused(reason=Reason.OFF_BASE, detail="x")]
                    case "broken":
                        return [e.RulesBroken(tree=self._new("t"), reason=Reason.TAMPERED, lines=("x",))]
                commits = int(self._choose(["1", "1", "1", "0"]))
                return [e.WorkTaken(head=self._new("h"), tree=self._new("t"), commits=commits, files=("web.html",))]
            case a.Action(step="ask-question"):
                return [e.QuestionAsked(id=self._new("q"), text="which port?")]
            case a.Action(step="judge-baseline"):
                if self._choose(["fine", "fine", "red"]) == "red":
                    return [e.WorkRefused(reason=Reason.BASELINE_RED, detail="x")]
                tree = state.work.built.onto_tree if state.work.delivery.candidate else "t0"
                return [e.BaselineKnown(key="k", tree=tree, results="", name=name) for name in _checked(state.work)]
            case a.Action(step="judge-gate"):
                return [self._gate(name, state.work.built.tree, state.work) for name in _checked(state.work)]
            case a.Action(step="judge-proof"):
                return [self._proof(state.work)]
            case a.Action(step="judge-verdict"):
                return [self._verdict(state)]
            case a.Action(step="judge-trial"):
                return [self._trial(state.work)]
            case _:
                return self._land(action, state)

    def _gate(self, name: str, tree: str, phase: WorkAttempt) -> e.Event:
        before = phase.proof.newest_gates.get(name)
        answer = self._choose(["passed", "passed", "failed", "unfinished"])
        time = before.time + 1 if before else 1
        return e.GateJudged(tree=tree, answer=GateAnswer(answer), code=0, line="x", time=time, name=name)

    def _proof(self, phase: WorkAttempt) -> e.Event:
        assert phase.dispatches.newest is not None
        kind = ProofKind(phase.dispatches.newest.scope)
        time = phase.proof.newest_runs[kind].time + 1 if kind in phase.proof.newest_runs else 1
        broken = (e.Promise(test="a.py::test_a", why="x"),) if self._choose(["kept", "broken"]) == "broken" else ()
        return e.ProofJudged(tree=phase.built.tree, kind=kind, line="x", time=time, promises=broken)

    def _verdict(self, state: RunState) -> e.Event:
        candidate = state.work.built
        proof = state.work.proof
        newest = state.work.dispatches.newest
        scope = newest.scope if newest else ""
        again = ["doubted"] if proof.doubted is None else []
        match self._choose(["pass", "pass", "fail", "invalid", "wrote", *again]):
            case "doubted":
                return e.VerdictDoubted(patch=candidate.patch, why="x", items=(("W1", "names nothing"),))
            case "invalid":
                return e.WorkRefused(reason=Reason.INVALID_VERDICT, detail="too short")
            case "wrote":
                return e.WorkRefused(reason=Reason.READONLY_VIOLATED, detail="x")
            case word:
                passed = word == "pass"
                return e.VerdictGiven(
                    tree=candidate.tree,
                    patch=candidate.patch,
                    passed=passed,
                    items=(("W1", passed, "seen"),),
                    agent="robot",
                    scope=scope,
                    questions=() if scope else proof.questions,
                )

    def _trial(self, phase: WorkAttempt) -> e.Event:
        built = phase.built
        match self._choose(["pass", "pass", "found", "invalid", *(["doubted"] if phase.proof.doubted is None else [])]):
            case "doubted":
                return e.VerdictDoubted(patch=built.patch, why="x", who="agent of the trial")
            case "invalid":
                return e.WorkRefused(reason=Reason.INVALID_VERDICT, detail="x")
            case word:
                found = ("it is blank",) if word == "found" else ()
                return TrialJudged(tree=built.tree, patch=built.patch, agent="robot", dispatch="d", findings=found)

    def _land(self, action: a.Action, state: RunState) -> list[e.Event]:
        phase = state.attempt
        match action:
            case a.Action(step="build-candidate"):
                return [self._build(state)]
            case a.RebuildBranch():
                return [
                    e.BranchRebuilt(
                        base=action.onto,
                        base_tree="t9",
                        parked="refs/runplan/parked/x/1/1",
                        complaint=action.complaint,
                        tree=action.tree,
                    )
                ]
            case a.Action(step="ask"):
                assert phase is not None
                assert phase.delivery.candidate is not None
                return [e.ApprovalAsked(tree=phase.delivery.candidate.tree)]
            case a.Action(step="land"):
                return self._swap(state)
            case a.Fail(reason=reason, at=step, detail=detail):
                return [e.PhaseFailed(phase=state.current.chosen.phase, reason=reason, step=step, detail=detail)]
            case a.Action(step="clean-up"):
                return [e.CleanedUp(phase="1")]
            case a.Finish(outcome=outcome, reason=reason, detail=detail):
                return [e.RunEnded(outcome=outcome, reason=reason, detail=detail)]
            case _:
                raise AssertionError(action)

    def _build(self, state: RunState) -> e.Event:
        match self._choose(["built", "built", "built", "same", "conflict", "empty"]):
            case "conflict":
                return e.CandidateConflicted(onto="c9", paths=("a",))
            case "empty":
                return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail="x")
            case word:
                failed = state.work.failed_tree
                tree = failed if word == "same" and failed else self._new("t")
                onto = self._choose(["c0", "c0", "c9"])
                return e.CandidateBuilt(
                    onto=onto,
                    onto_tree=f"t{onto}",
                    commits=("c2",),
                    tree=tree,
                    patch=self._choose(["p1", "p2"]),
                    proofs=self._proofs(),
                )

    def _proofs(self) -> tuple[e.ProofRun, ...]:
        kinds = ProofKind if self._choose(["none", "all"]) == "all" else ()
        return tuple(e.ProofRun(kind=kind, commit="c8", tree=self._new("t")) for kind in kinds)

    def _swap(self, state: RunState) -> list[e.Event]:
        phase = state.attempt
        assert phase is not None
        begun = phase.delivery.landing or e.LandingStarted(id="l", ref="r", old="c1", new="c3", code="c2")
        before: list[e.Event] = [] if phase.delivery.landing else [begun]
        if (
            before
            and isinstance(phase, WorkAttempt)
            and not phase.is_repair
            and not phase.is_last
            and self._choose(["more", "last"]) == "last"
        ):
            return [e.FinalVerificationDue(tree=phase.built.tree)]
        match self._choose(["landed", "landed", "held", "moved", "refused", "crash"]):
            case "landed":
                self._marked = phase.delivery.candidate is None
                return [*before, e.Landed(id="l", phase=phase.chosen.phase, tip="c3", code="c2")]
            case "held":
                return [*before, e.LandingHeld(why="a.txt is edited")]
            case "moved":
                return [*before, e.LandingMoved(tip="c4")]
            case "refused":
                return [*before, LandingRefused(why="protected branch")]
            case _:
                self._marked = not before and phase.delivery.candidate is None
                return before or [e.Landed(id="l", phase=phase.chosen.phase, tip="c3", code="c2")]
