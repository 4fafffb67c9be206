"""Journals of real runs: `make histories` runs tests through the command line, and keeps runs of every kind.

A history is a file of JSON lines: the origin and the end of the run, then its events, each with the actions that
followed. `tests/unit/test_histories.py` replays them.
"""

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from runplan.domain.run.actions import Decision, Fail, Finish, Start
from runplan.domain.run.decide import decide
from runplan.domain.run.events import Event
from runplan.domain.run.projection import CurrentStep, project_run, start_of_current_step
from runplan.domain.run.recorded import from_json
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import RunState, apply
from runplan.domain.times import iso

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "tests/histories"
MOMENT = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)  #: when each history begins
ENDS = ("state", "outcome", "reason", "phase", "step", "waiting_for", "tokens", "usd")  #: fields of a run's row
LEAST = 36  #: histories that are kept
LONGEST = 40_000  #: characters of a history

#: What pytest is run with: a test of each promise, and files with events that those lack.
TESTS = (
    ("--tier", "test", "tests/e2e", "tests/forge", "--ignore", "tests/e2e/test_docs.py"),
    tuple(f"tests/e2e/test_{name}.py" for name in ("setup_once", "revision", "issues", "pull_request", "outcomes")),
)


@dataclass(frozen=True)
class Line:
    at: str
    type: str
    body: dict[str, Any]
    then: str  #: the actions that followed


@dataclass(frozen=True)
class History:
    test: str  #: whose run it is
    plan: str
    end: dict[str, Any]
    lines: tuple[Line, ...]

    def replay(self) -> Iterator[tuple[Line, Event, RunState]]:
        """Each line with its event as it is read today, and the state after it."""
        state = RunState()
        for line in self.lines:
            event = from_json(line.type, json.dumps(line.body))
            assert event is not None, f"{line.type} is no event"
            state = apply(state, event)
            yield line, event, state

    def project(self, run: str, plan: str) -> RunRow:
        """The row that `status` reads."""
        current = CurrentStep()
        state = RunState()
        for line, _, state in self.replay():
            current = start_of_current_step(current, state, line.at)
        return project_run(state, run=run, plan=plan, started=self.lines[0].at, since=current.since)


def load_history(file: Path) -> History:
    head, *lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return History(**head, lines=tuple(Line(**line) for line in lines))


def save_history(history: History, file: Path) -> None:
    head = {"test": history.test, "plan": history.plan, "end": history.end}
    rows = [head, *(vars(line) for line in history.lines)]
    text = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    file.write_text(text + "\n", encoding="utf-8")


def describe_actions(decision: Decision) -> str:
    """The actions of a decision, and what it waits for: `await, read-plan`, `start verify [b]`, `waits: approval`."""
    words = []
    for action in decision.actions:
        match action:
            case Start():
                step = f"start {action.dispatch.role}"
            case Fail():
                step = f"fail {action.reason}"
            case Finish():
                step = f"finish {action.outcome}"
            case _:
                step = action.step
        words.append(f"{step} [{action.lane}]" if action.lane else step)
    return ", ".join(words) + (f" waits: {decision.waiting}" if decision.waiting else "")


def describe_end(row: RunRow) -> dict[str, Any]:
    return {name: value for name in ENDS if (value := to_builtins(getattr(row, name)))}


def read_journal(journal: Path, test: str, place: Path) -> Iterator[History]:
    """The runs of one journal; `place` is the directory of the test."""
    with contextlib.closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as database:
        runs = database.execute("SELECT id, plan FROM runs ORDER BY number").fetchall()
        for run, plan in runs:
            rows = database.execute("SELECT at, type, body FROM events WHERE run=? ORDER BY seq", (run,)).fetchall()
            text = json.dumps([(at, kind, json.loads(body)) for at, kind, body in rows], separators=(",", ":"))
            if not rows or len(text) > LONGEST:
                continue
            facts = json.loads(normalise(text, run, place, rows[0][0]))
            lines = tuple(Line(at=at, type=kind, body=body, then="") for at, kind, body in facts)
            history = History(test=test, plan=plan, end={}, lines=lines)
            then = [describe_actions(decide(state)) for _, _, state in history.replay()]
            lines = tuple(replace(line, then=words) for line, words in zip(lines, then, strict=True))
            yield History(test=test, plan=plan, end=describe_end(history.project(run, plan)), lines=lines)


def normalise(text: str, run: str, place: Path, began: str) -> str:
    """Without the names of this machine: its directories, processes, id of the run and clock."""
    shift = datetime.fromisoformat(began) - FIRST
    text = MOMENT.sub(lambda moment: iso(datetime.fromisoformat(moment[0]) - shift), text)
    for here, there in ((str(place), "/tmp/test"), (str(ROOT), "/opt/runplan"), (run, "r0000000")):
        text = text.replace(here, there)
    text = re.sub(r"runplan-tests-\w+-\w+", "runplan-tests", text)
    owner = r'("owner":"|"took_over":")(?:[^"/]*/)?[^"]*?"'
    return re.sub(owner, lambda match: f'{match[1]}1:1:boot"' if match[0] != f'{match[1]}"' else match[0], text)


def list_traits(history: History) -> tuple[set[str], set[str]]:
    """The options, events, actions and ends of a run; and which actions followed which events."""
    started = history.lines[0].body
    traits = {f"{name} {started.get(name)}" for name in ("landing", "mode", "auto", "daemon", "prove")}
    traits |= {f"{name} {value}" for name, value in history.end.items() if name not in ("phase", "tokens", "usd")}
    pairs = set()
    for line in history.lines:
        details = {f"{name} {line.body[name]}" for name in ("reason", "answer", "ending", "kind") if name in line.body}
        then = re.sub(r"\[\w+\]", "[lane]", line.then)
        traits |= {line.type, *then.split(", "), *details}
        pairs.add(f"{line.type}: {then}")
    return traits, pairs


def choose_histories(histories: list[History]) -> list[History]:
    """All traits of all of them, in as few and as short ones as easily found; then the most pairs."""
    traits = {place: list_traits(history) for place, history in enumerate(histories)}
    chosen: list[int] = []
    while traits and (len(chosen) < LEAST or any(own for own, _ in traits.values())):
        best = max(traits, key=lambda place: (*map(len, traits[place]), -len(histories[place].lines)))
        new, new_pairs = traits.pop(best)
        traits = {place: (own - new, pairs - new_pairs) for place, (own, pairs) in traits.items()}
        chosen.append(best)
    return [histories[place] for place in sorted(chosen)]


def pytest_runtest_call(item: pytest.Item) -> None:
    """Note the test of each temporary directory, whose name is cut; the module is a plug-in of `make histories`."""
    if place := getattr(item, "funcargs", {}).get("tmp_path"):
        place.with_name(f"{place.name}.test").write_text(item.nodeid, encoding="utf-8")


def collect_histories(base: Path) -> list[History]:
    """The runs of all tests with a note below `base`, by the names of the tests."""
    notes = {note: note.read_text(encoding="utf-8") for note in base.rglob("*.test")}
    histories: list[History] = []
    for note, test in sorted(notes.items(), key=lambda pair: pair[1]):
        for journal in sorted(note.with_suffix("").glob("*/.git/runplan/journal.db")):
            with contextlib.suppress(sqlite3.DatabaseError):  # broken on purpose
                histories += read_journal(journal, test, note.with_suffix(""))
    return histories


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="runplan-histories-") as base:
        for number, tests in enumerate(TESTS):
            words = ["-q", "-n", "auto", "-p", "tests.support.histories", "--basetemp", f"{base}/{number}"]
            kept = ["-o", "tmp_path_retention_policy=all"]
            subprocess.run([sys.executable, "-m", "pytest", *words, *kept, *tests], cwd=ROOT, check=False)
        chosen = choose_histories(collect_histories(Path(base)))
    for file in PLACE.glob("*.jsonl"):
        file.unlink()
    names: Counter[str] = Counter()
    for history in chosen:
        name = re.sub(r"[\W_]+", "-", history.test.partition("::test_")[2])[:80].strip("-")
        names[name] += 1
        save_history(history, PLACE / f"{name}{f'-{names[name]}' if names[name] > 1 else ''}.jsonl")
    sys.stdout.write(f"{len(chosen)} histories in {PLACE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
