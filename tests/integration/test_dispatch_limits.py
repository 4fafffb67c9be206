"""The limits of an agent hold until it ends, also after it reported success."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.run.dispatch import Ending
from tests.support.dispatching import Stage, shared_stage


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with shared_stage(tmp_path) as made:
        yield made


def answer(number: int, *, sent: str = "10k") -> str:
    """One of aider's, with what it cost."""
    return (
        f"echo 'Answer {number}.'\necho\n"
        f"echo 'Tokens: {sent} sent, 1k received. Cost: $1.00 message, ${number}.00 session.'\n"
    )


COST = r"Cost: \$1.00 message, \$$n.00 session."
ENDLESS = f'n=0; while :; do n=$((n + 1))\necho "Tokens: 10k sent, 1k received. {COST}"\ndone'


@pytest.mark.parametrize(
    "limit", [pytest.param({"usd": 2.0}, id="dollars"), pytest.param({"tokens": 20_000}, id="tokens")]
)
def test_an_aider_that_goes_on_after_its_limit_is_ended(on: Stage, limit: dict[str, object]) -> None:
    """It says after each answer that it is whole, and never that it was the last."""
    assert on.outcome(on.sh(ENDLESS, reader="aider", **limit)).ending is Ending.BUDGET


def test_an_aider_with_a_full_context_applies_its_answer(on: Stage) -> None:
    applies = "sleep 0.05; echo 'Applied edit to made.txt'; echo x >made.txt"
    outcome = on.outcome(on.sh(f"{answer(1, sent='130k')}{applies}", reader="aider", hand_over_at=60))

    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)
    assert (on.path / "made.txt").exists()


def result(**more: object) -> str:
    reported = {"type": "result", "subtype": "success", "is_error": False, "result": "All done.", **more}
    return f"echo '{json.dumps(reported)}'\n"


def said(number: int, **more: object) -> str:
    usage = {"input_tokens": 600, "output_tokens": 5}
    content = [{"type": "text", "text": "More."}]
    message = {"id": f"m{number}", "usage": usage, "content": content, **more}
    return f"echo '{json.dumps({'type': 'assistant', 'message': message})}'\n"


def test_a_claude_that_works_on_after_a_good_end_is_held_to_its_budget(on: Stage) -> None:
    outcome = on.outcome(on.sh(f"{said(1)}{result()}{said(2)}sleep 30", reader="claude", tokens=1_000))

    assert outcome.ending is Ending.BUDGET


def test_what_its_sub_agents_use_after_a_good_end_counts_and_leaves_the_end_standing(on: Stage) -> None:
    """Sub-agents may run on for a moment; a tool event does not name its agent."""
    tool = said(2, content=[{"type": "tool_use", "name": "Bash", "input": {}}]).replace(
        '"type": "assistant"', '"type": "assistant", "parent_tool_use_id": "t1"'
    )
    cheap = on.outcome(on.sh(f"{said(1)}{result()}{tool}", reader="claude", tokens=100_000))
    costly = on.outcome(on.sh(f"{said(1)}{result()}{tool}sleep 30", reader="claude", tokens=1_000, grace_s=0.05))

    assert (cheap.ending, cheap.tally.finished and cheap.tally.finished.ok) == (Ending.EXITED, True)
    assert costly.ending is Ending.BUDGET


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
    ids=["tokens reported at the end", "tokens", "usd", "context"],
)
def test_work_that_is_finished_is_not_cut_off_for_what_it_cost(
    on: Stage, reader: str, limit: dict[str, object]
) -> None:
    """An agent reports its usage at its end and exits later."""
    lines = "\n".join(DONE[reader])

    outcome = on.outcome(on.sh(f"echo '{lines}'; sleep 0.1; echo; sleep 0.1; exit 0", reader=reader, **limit))

    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)


def test_wall_time_is_kept_after_a_good_end_too(on: Stage) -> None:
    outcome = on.outcome(on.sh(f"echo '{DONE['codex'][0]}'; sleep 30", reader="codex", wall_s=0.3))

    assert outcome.ending is Ending.TIMEOUT
