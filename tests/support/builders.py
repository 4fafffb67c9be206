"""Plans, settings, journals and metrics for unit tests."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from runplan.adapters.configuration.load import Layer, LoadedSettings, merge_layers
from runplan.adapters.store.sql import Append
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, Mode, Role
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import RunState, apply
from runplan.domain.settings.schema import AgentsSettings, CheckSettings, RunSettings, Settings
from runplan.domain.times import iso


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
    store.append(Append(rows, shown, fence))


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


def fold_on(state: RunState, *events: e.Event) -> RunState:
    """The state after further events."""
    for event in events:
        state = apply(state, event)
    return state


def decided(state: RunState) -> str:
    """The decision in words: the actions that are due, or what the run waits for."""
    decision = decide(state)
    return ", ".join(map(_describe, decision.actions)) or f"waits for {decision.waiting}"


def _describe(action: a.Action) -> str:
    lane = f"{action.lane}: " if action.lane else ""
    match action:
        case a.Start(dispatch=dispatch):
            return f"{lane}{dispatch.role} {dispatch.tree}".strip()
        case a.Fail(reason=reason, at=step, detail=detail):
            return f"{lane}fail {reason} at {step}: {detail}"
        case a.Finish(outcome=outcome, reason=reason):
            return f"{lane}finish {outcome} {reason}".strip()
    return f"{lane}{action.step}"


def starting(state: RunState) -> e.DispatchStarted:
    """The only dispatch that is due."""
    (action,) = decide(state).actions
    assert isinstance(action, a.Start)
    return action.dispatch


def failing(state: RunState) -> a.Fail:
    """The only action that is due, a failure."""
    (action,) = decide(state).actions
    assert isinstance(action, a.Fail)
    return action


def ended(id_: str, role: str, ending: Ending = Ending.EXITED, code: int | None = 0, **more: Any) -> e.DispatchEnded:
    return e.DispatchEnded(id=id_, role=Role(role), ending=ending, code=code, **more)


#: Events of phase 1, from its choice to its proof.
CHOSEN = e.PhaseChosen(tip="c0", phase="1", items=(("W1", "x"),))
LEASED = e.Leased(phase="1", branch="b", base="c0", base_tree="t0", worktree="w", attempt=1)
BUILT = e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("c1",), tree="t1", patch="p")
TAKEN = e.WorkTaken(head="h", tree="t1", commits=1)
SKIPPED = e.GateJudged(tree="t1", answer=GateAnswer.SKIPPED, code=None, line="", time=1)
PASSED = e.GateJudged(tree="t1", answer=GateAnswer.PASSED, code=0, line="x", time=1)
PROVEN = e.VerdictGiven(tree="t1", patch="p", passed=True, items=(("W1", True, "y"),), agent="r")
