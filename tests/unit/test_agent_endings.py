"""Endings for which there is no captured stream: made by hand after what the programs are known to do."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.clis.mini import TRAJECTORY
from runplan.adapters.agents.endings import AgentEnding, classify_trouble
from runplan.domain.run.dispatch import Ending, EndingKind, Finished, Outcome, Tally, Trouble, Usage
from tests.support.samples import THEN, ending, outcome_of


def stream(*events: dict[str, Any]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


def claude_result(**changes: object) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", **changes}


def claude_error(status: int | None, words: str, **changes: object) -> list[bytes]:
    return stream(claude_result(is_error=True, api_error_status=status, result=words, **changes))


def codex_failed(words: str) -> list[bytes]:
    return stream({"type": "error", "message": words}, {"type": "turn.failed", "error": {"message": words}})


def qwen_said(words: str) -> list[bytes]:
    return stream({"type": "result", "subtype": "success", "is_error": False, "result": words})


def opencode_step(reason: str, said: str = "Done.") -> list[bytes]:
    text = {"type": "text", "part": {"text": said}}
    return stream({"type": "step_start"}, text, {"type": "step_finish", "part": {"reason": reason}})


def opencode_error(name: str, **data: object) -> list[bytes]:
    return stream({"type": "error", "timestamp": THEN * 1000, "error": {"name": name, "data": data}})


def mini_info(status: str, error: str = "") -> bytes:
    messages = [{"role": "exit", "extra": {"exception_str": error}}] if error else []
    return json.dumps({"info": {"exit_status": status, "submission": ""}, "messages": messages}).encode()


TOOL_USE = {"type": "tool_use", "name": "Bash", "input": {}}
TOOL = {"type": "assistant", "message": {"content": [TOOL_USE], "usage": {"input_tokens": 9}}}

AT_CAPACITY = "Selected model is at capacity. Please try a different model."
HIGH_DEMAND = "We're currently experiencing high demand, which may cause temporary errors."

MADE_BY_HAND: list[tuple[str, str, list[bytes], int, str, str]] = [
    # agent, what happened, its lines, exit code, standard error, ending
    ("claude", "no credit", claude_error(400, "Credit balance is too low"), 1, "", "setup"),
    ("claude", "unknown model", claude_error(404, "There is an issue with the selected model"), 1, "", "setup"),
    ("claude", "no headers", claude_error(None, "Request timed out"), 1, "", "overloaded"),
    ("claude", "connection reset", claude_error(None, "API Error: Connection error."), 1, "", "overloaded"),
    ("claude", "server error", claude_error(500, "API Error: 500 Internal server error"), 1, "", "overloaded"),
    ("claude", "a pace too high", claude_error(429, "API Error: Request rejected (429)"), 1, "", "overloaded"),
    ("claude", "broken events", claude_error(None, "API Error: something odd"), 1, "", "crashed"),
    ("claude", "login gone", claude_error(None, "Not logged in · Please run /login"), 1, "", "auth"),
    ("claude", "empty reply", stream(claude_result(result="")), 0, "", "no-output"),
    ("claude", "bad arguments", [], 1, "error: unknown option '--what'", "crashed"),
    ("claude", "code 0, no end event", stream(TOOL), 0, "", "crashed"),
    ("claude", "code 0, not a word", [], 0, "", "no-output"),
    ("claude", "code 1 after a good end", stream(claude_result()), 1, "", "crashed"),
    ("codex", "empty reply", stream({"type": "turn.completed", "usage": {}}), 0, "", "no-output"),
    ("codex", "unavailable", codex_failed("unexpected status 503 Service Unavailable"), 1, "", "overloaded"),
    ("codex", "stream cut", codex_failed("stream disconnected before completion"), 1, "", "overloaded"),
    ("codex", "at capacity", codex_failed(AT_CAPACITY), 1, "", "overloaded"),
    ("codex", "high demand", codex_failed(HIGH_DEMAND), 1, "", "overloaded"),
    ("codex", "unknown model", codex_failed("unexpected status 404 Not Found: no such model"), 1, "", "setup"),
    ("codex", "quota", codex_failed("Quota exceeded. Check your plan and billing details."), 1, "", "limit"),
    ("codex", "prompt of 2 MB", [], 1, "Error: input_too_large: 1048577 characters", "context"),
    ("codex", "closed stdout", [], 101, "thread 'main' panicked at src/main.rs", "crashed"),
    ("codex", "not logged in", [], 1, "Error: Not logged in. Run codex login", "auth"),
    ("gemini", "no way to log in", [], 41, "Please set an Auth method", "auth"),
    ("gemini", "turns used up", [], 53, "", "max-turns"),
    ("gemini", "empty prompt", [], 42, "No input provided", "crashed"),
    ("gemini", "unavailable, no result", [], 247, "", "overloaded"),
    ("gemini", "server error, no result", [], 244, "", "overloaded"),
    ("gemini", "quota, no result", [], 173, "", "limit"),
    ("gemini", "empty body", stream({"type": "result", "status": "error", "error": {}}), 0, "", "crashed"),
    ("gemini", "empty answer", stream({"type": "result", "status": "success", "stats": {}}), 0, "", "no-output"),
    ("qwen", "too long", qwen_said("[API Error: 400 This model's maximum context length is 1]"), 0, "", "context"),
    ("qwen", "unknown model", qwen_said("[API Error: 404 The model `x` does not exist]"), 0, "", "setup"),
    ("qwen", "no credit", qwen_said("[API Error: 400 Credit balance is too low]"), 0, "", "setup"),
    ("qwen", "stream cut", qwen_said("[API Error: Premature close]"), 0, "", "crashed"),
    ("qwen", "connection reset", qwen_said("[API Error: Connection error.]"), 0, "", "overloaded"),
    ("qwen", "usage limit", qwen_said("[API Error: 429 You exceeded your current quota]"), 0, "", "limit"),
    ("qwen", "empty reply", qwen_said(""), 0, "", "no-output"),
    ("opencode", "a web page for an answer", opencode_step("unknown"), 0, "", "crashed"),
    ("opencode", "stop by length", opencode_step("length"), 0, "", "crashed"),
    ("opencode", "cut after a tool call", opencode_step("tool-calls"), 0, "", "crashed"),
    ("opencode", "empty reply", opencode_step("stop", ""), 0, "", "no-output"),
    ("opencode", "server error", opencode_error("APIError", message="oops", statusCode=500), 1, "", "overloaded"),
    ("opencode", "unknown session", [], 1, "Error: Session not found", "crashed"),
    ("opencode", "shared database", [], 1, "Error: Unexpected error\n\ndatabase is locked", "overloaded"),
    ("opencode", "full", opencode_error("APIError", message="prompt is too long", statusCode=400), 1, "", "context"),
    ("aider", "too long", [b"litellm.ContextWindowExceededError: too big"], 0, "", "context"),
    ("aider", "no credit", [b"litellm.BadRequestError: Your credit balance is too low"], 0, "", "setup"),
    ("aider", "nothing at all", [], 0, "", "no-output"),
    ("aider", "bad arguments", [], 2, "aider: error: unrecognized arguments", "crashed"),
]


@pytest.mark.parametrize(
    ("cli", "lines", "code", "error", "ends"),
    [pytest.param(cli, *rest, id=f"{cli}: {what}") for cli, what, *rest in MADE_BY_HAND],
)
def test_a_known_error_has_its_ending(cli: str, lines: list[bytes], code: int, error: str, ends: str) -> None:
    assert ending(cli, outcome_of(cli, lines, code=code, error=error)).kind == ends


@pytest.mark.parametrize(
    ("status", "error", "ends"),
    [
        ("RepeatedFormatError", "", "crashed"),
        ("LimitsExceeded", "", "budget"),
        ("RateLimitError", "litellm.RateLimitError: 429 Too Many Requests", "overloaded"),
        ("RateLimitError", "litellm.RateLimitError: You exceeded your current quota", "limit"),
        ("ContextWindowExceededError", "", "context"),
        ("NotFoundError", "litellm.NotFoundError: The model `x` does not exist", "setup"),
        ("", "", "no-output"),
    ],
)
def test_mini_ends_with_the_status_of_its_trajectory(tmp_path: Path, status: str, error: str, ends: str) -> None:
    (tmp_path / TRAJECTORY).write_bytes(mini_info(status, error))
    rest = agent_of("mini").read_reports(tmp_path)
    found = outcome_of("mini", [], code=0 if status != "RateLimitError" else 1, rest=rest)
    assert ending("mini", found).kind == ends


# --- only errors are read for errors -------------------------------------------------------------------

PROSE = "You've hit your usage limit. Error 401: invalid API key. 529 overloaded. litellm.RateLimitError: no. Refused."
TOOL_OUTPUT = {"type": "user", "message": {"content": [{"type": "tool_result", "content": PROSE, "is_error": True}]}}


@pytest.mark.parametrize(
    ("cli", "lines"),
    [
        ("claude", stream(TOOL_OUTPUT, claude_result(result=PROSE))),
        ("qwen", stream(TOOL_OUTPUT, claude_result(result=f"It says [API Error: 401]. {PROSE}"))),
        (
            "codex",
            stream(
                {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": PROSE}},
                {"type": "item.completed", "item": {"type": "agent_message", "text": PROSE}},
                {"type": "turn.completed", "usage": {}},
            ),
        ),
        (
            "gemini",
            stream(
                {"type": "tool_result", "status": "error", "output": PROSE, "error": {"message": PROSE}},
                {"type": "message", "role": "assistant", "content": PROSE, "delta": True},
                {"type": "result", "status": "success", "stats": {}},
            ),
        ),
        ("opencode", opencode_step("stop", PROSE)),
        ("aider", [b"litellm.RateLimitError: is what the code raises", b"Tokens: 2.1k sent, 23 received."]),
        ("aider", [b"Tokens: 2.1k sent, 23 received.", b"litellm.RateLimitError: quota exceeded, for example"]),
        ("qwen", stream(claude_result(result="[API Error handling] I added a test for the usage limit."))),
    ],
)
def test_a_message_about_limits_is_not_a_limit(cli: str, lines: list[bytes]) -> None:
    assert ending(cli, outcome_of(cli, lines)) == AgentEnding(kind=EndingKind.SUCCESS)


def test_an_aider_error_after_an_answer_is_an_error() -> None:
    """It reflects on what it wrote, and then asks again."""
    lines = [b"Tokens: 2.1k sent, 23 received.", b"litellm.RateLimitError: RateLimitError: OpenAIException - no more"]
    assert ending("aider", outcome_of("aider", lines)).kind == "overloaded"


CACHED = b"Tokens: 12k sent, 1.5k cache write, 10k cache hit, 1.2k received. Cost: $0.0300 message, $1.50 session."


@pytest.mark.parametrize(
    ("line", "used"),
    [
        (b"Tokens: 2.1k sent, 23 received.", Usage(input_tokens=2_100, output_tokens=23)),
        (CACHED, Usage(input_tokens=12_000, output_tokens=1_200, usd=0.03)),
        (b"Tokens: 9999999M sent, 1 received.", Usage()),  # prose
        (b"Tokens: 2.1k sent, 23 received. That is what it prints.", Usage()),
        (b"Tokens: lots sent, 1 received.", Usage()),
    ],
)
def test_aiders_count_is_read_in_all_its_forms_and_prose_that_looks_like_it_is_prose(line: bytes, used: Usage) -> None:
    found = outcome_of("aider", [line])
    assert found.tally.usage == used
    assert (line.decode() in found.message, found.tally.finished is None) == (used == Usage(), used == Usage())


@pytest.mark.parametrize("cli", ["claude", "qwen"])
def test_tool_output_does_not_explain_a_crash(cli: str) -> None:
    assert ending(cli, outcome_of(cli, stream(TOOL, TOOL_OUTPUT), code=1)).kind == "crashed"


@pytest.mark.parametrize(
    ("code", "message", "error", "ends"),
    [
        (1, "", "warning: x\n\nYou've hit your usage limit. Try again in 2 hours.", ("limit", THEN + 7_200.0)),
        (1, f"Claude AI usage limit reached|{THEN + 60}", "", ("limit", THEN + 60.0)),
        (1, "The daily limit is in limits.py.\n\nI could not finish.", "", ("crashed", None)),
        (0, "You've hit your usage limit.", "", ("success", None)),
    ],
)
def test_a_usage_limit_is_all_that_is_believed_of_a_failed_command(
    code: int, message: str, error: str, ends: tuple[str, float | None]
) -> None:
    said = Outcome(ending=Ending.EXITED, code=code, signal=None, message=message, error=error, ended_at=float(THEN))
    found = ending("command", said)
    assert (found.kind, found.resets) == ends


def test_another_error_of_a_command_is_not_read() -> None:
    said = Outcome(ending=Ending.EXITED, code=1, signal=None, message="x", error="rate limit, 401 unauthorized")
    assert ending("command", said).kind == "crashed"
    assert ending("claude", said).kind == "auth"


# --- limits --------------------------------------------------------------------------------------------


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("cli", "lines", "resets"),
    [
        ("claude", claude_error(429, "You've hit your limit · resets Nov 16, 2:30am (UTC)"), at("2026-11-16T02:30")),
        (
            "codex",
            codex_failed("You’ve hit your usage limit. Upgrade or try again at Nov 16th, 2026 2:30 AM."),
            at("2026-11-16T02:30"),
        ),
        (
            "opencode",
            opencode_error("APIError", message="slow down", statusCode=429, responseHeaders={"retry-after": "3600"}),
            THEN + 3600,
        ),
        ("gemini", stream({"type": "result", "status": "error", "error": {"message": "daily quota"}}), None),
    ],
)
def test_the_reset_time_of_a_limit_is_read(cli: str, lines: list[bytes], resets: float | None) -> None:
    found = ending(cli, outcome_of(cli, lines, code=1))
    assert (found.kind, found.resets) == ("limit", resets)


@pytest.mark.parametrize(
    ("resets", "read"), [(THEN + 7_000, THEN + 7_000), (THEN - 60, None), (THEN + 9 * 86_400, None)]
)
def test_a_structured_reset_time_overrides_the_message_unless_it_is_impossible(resets: float, read: float) -> None:
    info = {"status": "rejected", "resetsAt": resets}
    lines = stream({"type": "rate_limit_event", "rate_limit_info": info})
    words = "You've hit your limit · resets 1:27am (UTC)" if read else "x"
    found = ending("claude", outcome_of("claude", [*lines, *claude_error(429 if read else None, words)], code=1))
    assert (found.kind, found.resets) == ("limit", read)


REJECTED = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": THEN + 7_000}}


@pytest.mark.parametrize(
    ("after", "kind", "resets"),
    [
        (claude_error(429, "limit"), "limit", THEN + 7_000),
        (claude_error(529, "Overloaded"), "limit", THEN + 7_000),
        (claude_error(None, "something else"), "limit", THEN + 7_000),
        (claude_error(401, "Invalid API key"), "auth", None),
    ],
    ids=["too many requests", "overloaded", "unknown", "auth"],
)
def test_a_limit_with_a_reset_time_overrides_later_errors(after: list[bytes], kind: str, resets: float | None) -> None:
    found = ending("claude", outcome_of("claude", [*stream(REJECTED), *after], code=1))
    assert (found.kind, found.resets) == (kind, resets)


def test_a_limit_without_a_reset_time_gives_way_to_what_follows() -> None:
    lines = stream({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected"}})
    busy = ending("claude", outcome_of("claude", [*lines, *claude_error(529, "Overloaded")], code=1))
    assert (busy.kind, busy.resets) == ("overloaded", None)
    assert ending("claude", outcome_of("claude", [*lines, *stream(claude_result())])).kind == "success"


# --- processes -----------------------------------------------------------------------------------------

RETRY = stream({"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"})


@pytest.mark.parametrize(
    ("how", "lines", "ends"),
    [
        (Ending.TIMEOUT, [], "timed-out"),
        (Ending.SILENT, stream(TOOL), "silent"),
        (Ending.ENDED, stream(claude_result()), "killed"),
        (Ending.LOST, [], "killed"),
        (Ending.SURVIVED, stream(claude_result()), "setup"),
        (Ending.MISSING, [], "setup"),
        (Ending.SIGNALLED, [], "killed"),
        (Ending.SIGNALLED, stream(claude_result()), "killed"),
        (Ending.TIMEOUT, RETRY, "overloaded"),
        (Ending.SILENT, RETRY, "overloaded"),
        (Ending.TIMEOUT, [*RETRY, *stream(TOOL)], "timed-out"),
    ],
)
def test_the_exit_of_the_process_decides_the_ending(how: Ending, lines: list[bytes], ends: str) -> None:
    assert ending("claude", outcome_of("claude", lines, code=None, ending=how)).kind == ends


def test_a_wait_between_retries_has_the_reason_of_the_last_error() -> None:
    lines = [b"litellm.RateLimitError: Rate limit reached", b"Retrying in 64.0 seconds..."]
    assert ending("aider", outcome_of("aider", lines, code=None, ending=Ending.TIMEOUT)).kind == "overloaded"


BACKOFF = "Attempt {} failed with status {}. Retrying with backoff... _ApiError: busy\n"


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (f"{BACKOFF.format(3, 503)}    at f (x.js:1:2) {{", "overloaded"),
        (BACKOFF.format(1, 401), "auth"),
        ("Warning: Basic terminal detected (TERM=dumb).\n", "silent"),
        ("could not read the cache, retrying\n", "silent"),
    ],
)
def test_a_wait_is_read_from_standard_error(error: str, ends: str) -> None:
    outcome = outcome_of("gemini", [], code=None, ending=Ending.SILENT, error=error)
    assert ending("gemini", outcome).kind == ends


def test_a_silent_command_with_exit_code_0_succeeds() -> None:
    assert ending("command", Outcome(ending=Ending.EXITED, code=0, signal=None, message="")).kind == "success"


@pytest.mark.parametrize("kind", [kind for kind in EndingKind if kind is not EndingKind.CRASHED])
def test_every_kind_of_trouble_has_an_ending(kind: EndingKind) -> None:
    tally = Tally(troubles=(Trouble(kind=kind, words="a\nb"),), finished=Finished(ok=False))
    found = ending("command", Outcome(ending=Ending.EXITED, code=1, signal=None, message="", tally=tally))
    assert (found.kind, found.words) == (kind.value, "a b")


def test_the_last_known_trouble_decides_the_ending() -> None:
    reported = (classify_trouble("Invalid API key"), classify_trouble("529 overloaded"), classify_trouble("oops"))
    said = Outcome(ending=Ending.EXITED, code=1, signal=None, message="", tally=Tally(troubles=reported))
    assert ending("command", said).kind == "overloaded"
