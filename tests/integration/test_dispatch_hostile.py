"""Agents that turn on the records of their dispatch: nothing outside is written, nothing hangs, nothing is believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.dispatches import Dispatches
from runplan.core.agentevents import Usage
from runplan.core.dispatch import Ending, NeverStarted, Outcome
from tests.support.dispatching import Stage, stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORGED = {
    "ending": "exited",
    "code": 0,
    "signal": None,
    "message": "All done.",
    "tools": [],
    "tools_left_out": 0,
    "usage": [],
    "output_bytes": 0,
    "leftovers": 0,
}


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def played(on: Stage, text: str, **changes: object) -> str:
    """A dispatch whose agent finds its own directory in $D."""
    launch = on.launch("true", **changes)
    directory = on.dispatches.directory(launch.id)
    return on.sh(f"D='{directory}'\n{text}", id=launch.id, **changes)


def elsewhere(on: Stage, dispatch: str) -> object:
    """What a runner sees that did not start the dispatch."""
    return Dispatches(on.path / "dispatch").standing(dispatch)


@pytest.mark.parametrize("name", ["exit.json.new", "exit.json", "shim.json.new", "shim.json"])
def test_no_link_that_an_agent_leaves_is_written_through(on: Stage, name: str) -> None:
    victim = on.path / "victim"
    victim.write_text("mine\n")

    outcome = on.outcome(played(on, f'ln -sf {victim} "$D/{name}"; echo said'))

    assert (outcome.ending, outcome.code, outcome.message) == (Ending.EXITED, 0, "said\n")
    assert victim.read_text() == "mine\n"


@pytest.mark.parametrize("made", ['ln -s {victim} "$D/handoff.md"', 'mkdir -p "$D/handoff.md/deep"', "true"])
def test_a_note_takes_the_place_of_whatever_was_left_there(on: Stage, made: str) -> None:
    victim = on.path / "victim"
    victim.write_text("mine\n")
    dispatch = played(on, made.format(victim=victim))
    on.outcome(dispatch)

    on.dispatches.write(dispatch, "handoff.md", "where it stands: ä\n")

    assert on.dispatches.read(dispatch, "handoff.md") == "where it stands: ä\n"
    assert victim.read_text() == "mine\n"


@pytest.mark.parametrize(
    "spoil", ['mkdir -p "$D/exit.json/deep"', 'mkfifo "$D/exit.json"', 'echo garbage >"$D/exit.json"']
)
def test_what_stands_in_the_place_of_an_exit_gives_way_to_it(on: Stage, spoil: str) -> None:
    outcome = on.outcome(played(on, f"{spoil}; echo said; exit 3"))

    assert (outcome.ending, outcome.code, outcome.message) == (Ending.EXITED, 3, "said\n")


POISONS = {
    "nothing": "true",
    "garbage": 'echo garbage >"$D/exit.json"',
    "another form": 'echo "[1, 2]" >"$D/exit.json"',
    "half of it": 'echo "{\\"ending\\": \\"exited\\"}" >"$D/exit.json"',
    "a folder": 'mkdir "$D/exit.json"',
    "a pipe": 'mkfifo "$D/exit.json"',
    "a link": 'ln -s /dev/zero "$D/exit.json"',
    "a forged one": f"echo '{json.dumps(FORGED)}' >\"$D/exit.json\"",
    "one with a token": f"echo '{json.dumps(FORGED | {'token': 'x' * 32})}' >\"$D/exit.json\"",
    "one without sense": f"echo '{json.dumps(FORGED | {'code': [], 'token': 7})}' >\"$D/exit.json\"",
}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS.keys())
def test_who_kills_its_shim_is_lost_whatever_it_says_in_its_place(on: Stage, poison: str) -> None:
    dispatch = played(on, f"{poison}; kill -9 $PPID; exit 0")

    assert on.outcome(dispatch).ending is Ending.LOST
    seen = elsewhere(on, dispatch)
    assert isinstance(seen, Outcome)
    assert seen.ending is Ending.LOST


def test_without_its_shims_record_a_forged_exit_still_deceives_nobody_who_started_it(on: Stage) -> None:
    dispatch = played(on, f'{POISONS["a forged one"]}; rm "$D/shim.json"; kill -9 $PPID')

    assert on.outcome(dispatch).ending is Ending.LOST


def test_an_honest_exit_is_believed_by_every_runner(on: Stage) -> None:
    dispatch = on.sh("echo said; exit 4")

    outcome = on.outcome(dispatch)

    assert outcome == elsewhere(on, dispatch)
    assert (outcome.ending, outcome.code) == (Ending.EXITED, 4)


def test_what_a_lost_agent_had_used_is_known_from_its_log(on: Stage) -> None:
    told = json.dumps({"type": "turn.completed", "usage": {"input_tokens": 5000, "output_tokens": 7}})
    # The shim has read what came before once it has made the log longer.
    waits = 'until grep -q turn.completed "$D/out.log"; do sleep 0.01; done'
    dispatch = played(on, f"echo '{told}'; {waits}; kill -9 $PPID", reader="codex")

    outcome = on.outcome(dispatch)

    assert outcome.ending is Ending.LOST
    assert outcome.tally.usage == Usage(input_tokens=5000, output_tokens=7)
    assert outcome.tally.finished is None
    assert outcome.message == ""


@pytest.mark.parametrize("lock", ['mkfifo "$D/lock"', 'ln -s /dev/zero "$D/lock"', 'mkdir "$D/lock"'])
def test_a_lock_that_is_no_file_holds_nobody_up(on: Stage, lock: str) -> None:
    dispatch = played(on, f'rm "$D/lock"; {lock}; kill -9 $PPID')

    assert on.outcome(dispatch).ending is Ending.LOST


def test_a_directory_that_became_a_file_tells_nothing_and_stops_nobody(on: Stage) -> None:
    dispatch = played(on, 'rm -rf "$D"; echo x >"$D"')
    on.dispatches.wait([dispatch], timeout_s=30)

    again = Dispatches(on.path / "dispatch")

    assert again.standing(dispatch) == NeverStarted()
    assert again.read(dispatch, "guard.json") is None


DONE = {
    "codex": ['{"type":"turn.completed","usage":{"input_tokens":5000,"output_tokens":5}}'],
    "claude": [
        '{"type":"assistant","message":{"id":"m1","usage":{"input_tokens":100000,"output_tokens":5},"content":[]}}',
        '{"type":"result","subtype":"success","is_error":false,"result":"All done.","total_cost_usd":0.5,'
        '"modelUsage":{"m":{"inputTokens":100000,"outputTokens":5,"contextWindow":150000}}}',
    ],
}


@pytest.mark.parametrize(
    ("reader", "limit"),
    [("codex", {"tokens": 1000}), ("claude", {"tokens": 1000}), ("claude", {"usd": 0.1}), ("claude", {})],
    ids=["tokens told at the end", "tokens", "usd", "context"],
)
def test_work_that_is_finished_is_not_cut_off_for_what_it_cost(
    on: Stage, reader: str, limit: dict[str, object]
) -> None:
    """An agent tells what it used at its end, and then takes its time to go."""
    lines = "\n".join(DONE[reader])

    outcome = on.outcome(on.sh(f"echo '{lines}'; sleep 0.1; echo; sleep 0.1; exit 0", reader=reader, **limit))

    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)


def test_wall_time_is_kept_after_a_good_end_too(on: Stage) -> None:
    outcome = on.outcome(on.sh(f"echo '{DONE['codex'][0]}'; sleep 30", reader="codex", wall_s=0.3))

    assert outcome.ending is Ending.TIMEOUT
