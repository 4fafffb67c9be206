"""No bytes make a reader raise, and none make it slow."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.clis.mini import TRAJECTORY
from runplan.adapters.configuration.load import list_agent_kinds
from runplan.domain.run.dispatch import (
    AgentEvent,
    Context,
    EndingKind,
    Message,
    Outcome,
    Retrying,
    Spent,
    Trouble,
    Unread,
    Usage,
)
from tests.support.samples import FOLDERS, ending, lines, outcome_of, streams

Reader = Callable[[bytes], tuple[AgentEvent, ...]]


def reader_of_file(kind: str, name: str) -> Reader:
    def read(content: bytes) -> tuple[AgentEvent, ...]:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            return agent_of(kind).read_reports(Path(place))

    return read


READERS: dict[str, Reader] = {kind: agent_of(kind).read_line for kind in list_agent_kinds()}
READERS["trajectory"] = reader_of_file("mini", TRAJECTORY)
READERS["session"] = reader_of_file("qwen", "projects/p/chats/s.jsonl")
del READERS["script"]  # its lines are our own player's

#: Readers of JSON lines.
OF_LINES = [kind for kind in FOLDERS if any(stream.endswith(".jsonl") for stream in streams(kind))]

LINES = {kind: [line for stream in streams(kind) for line in lines(stream)] or [b""] for kind in FOLDERS}

#: Every word that stands for something in some stream, so that made-up events get far.
VOCABULARY = sorted(
    {word for stream in streams() if not stream.endswith(".txt") for line in lines(stream) for word in json.loads(line)}
    | {"message", "content", "usage", "part", "state", "input", "error", "data", "item", "changes", "stats", "info"}
    | {"text", "type", "name", "tokens", "cache", "read", "messages", "extra", "response", "rate_limit_info"}
    | {"responseHeaders", "statusCode", "input_tokens", "resetsAt", "modelUsage", "permission_denials", "errors"}
)
TYPES = [
    *("assistant", "user", "system", "result", "rate_limit_event", "init", "api_retry", "compact_boundary"),
    *("text", "tool_use", "thread.started", "turn.completed", "turn.failed", "error", "item.completed"),
    *("agent_message", "command_execution", "file_change", "message", "tool_result", "step_start"),
    *("step_finish", "stop", "success", "Submitted", "rejected"),
]

NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.just(10**400))
WORDS = st.one_of(st.text(max_size=20), st.sampled_from(TYPES), st.just("\ud800"))
VALUES = st.recursive(
    st.one_of(NUMBERS, WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(VOCABULARY), inner, max_size=4)
    ),
    max_leaves=15,
)


@st.composite
def made_up(draw: st.DrawFn) -> bytes:
    event: dict[str, Any] = draw(st.dictionaries(st.sampled_from(VOCABULARY), VALUES, max_size=6))
    event["type"] = draw(st.sampled_from(TYPES))
    event["subtype"] = draw(st.sampled_from(TYPES))
    return json.dumps(event).encode()


def printable(events: tuple[AgentEvent, ...]) -> None:
    """Every reported text can be encoded as UTF-8."""
    for event in events:
        for name in type(event).__struct_fields__:
            str(getattr(event, name)).encode()


@given(line=made_up())
def test_any_event_is_read(line: bytes) -> None:
    for read in READERS.values():
        printable(read(line))


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
def test_a_damaged_real_line_is_read(kind: str, data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(LINES[kind if kind in FOLDERS else FOLDERS[0]]))
    cut, byte = data.draw(st.integers(0, len(line))), data.draw(st.binary(max_size=3))
    printable(READERS[kind](line[:cut]))
    printable(READERS[kind](line[:cut] + byte + line[cut + len(byte) :]))


SIZE = 512 * 1024

HEAVY = {
    "zeros": b"\0" * SIZE,
    "digits": b"1" * SIZE,
    "open brackets": b'{"type":' + b"[" * SIZE,
    "nested objects": b'{"a":' * (SIZE // 5),
    "a number without end": b'{"type":"result","num":' + b"9" * SIZE + b"}",
    "one long text": json.dumps({"type": "assistant", "message": {"content": "x" * SIZE}}).encode(),
    "a long error": json.dumps({"type": "turn.failed", "error": {"message": "error 4" * (SIZE // 7)}}).encode(),
    "clock after clock": json.dumps({"type": "error", "message": "try again at 1" * (SIZE // 14)}).encode(),
    "an error of blanks": json.dumps({"type": "result", "is_error": True, "result": " " * SIZE}).encode(),
    "many parts": json.dumps({"type": "assistant", "message": {"content": [{"type": "text"}] * (SIZE // 20)}}).encode(),
    "aider's tokens": b"Tokens: " + b"1." * (SIZE // 2) + b"k sent, ",
    "aider's tokens again": b"Tokens: 1k sent, " + b"a, " * (SIZE // 3),
    "litellm": b"litellm." + b"a" * SIZE,
    "quotes": b'{"a":"' + b'\\"' * (SIZE // 2),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_long_line_is_read_in_linear_time(kind: str) -> None:
    """Half a megabyte in two seconds leaves much for a slow machine; a square would take hours."""
    for heavy, line in HEAVY.items():
        began = time.process_time()
        READERS[kind](line)
        assert time.process_time() - began < 2.0, heavy


@pytest.mark.parametrize("kind", OF_LINES)
def test_a_line_of_an_unknown_form_is_counted_and_ignored(kind: str) -> None:
    for line in (b"a warning", b'{"type":"news"}', b"{}", b"[1]", b'{"type":', b'{"type":7}'):
        assert READERS[kind](line) == (Unread(),), line
    assert READERS[kind](b"") == READERS[kind](b"  \r") == ()


def test_half_a_character_becomes_a_question_mark() -> None:
    said = READERS["opencode"](b'{"type":"text","part":{"text":"a\\ud800b"}}')
    assert said == (Message(text="a?b\n"),)


@pytest.mark.parametrize("number", ["-1", "true", "1e400", "NaN", "Infinity", '"7"', "[7]", "null", "1e300"])
def test_an_impossible_token_count_is_ignored(number: str) -> None:
    line = f'{{"type":"turn.completed","usage":{{"input_tokens":{number},"output_tokens":7.0}}}}'
    assert READERS["codex"](line.encode())[0] == Spent(usage=Usage(output_tokens=7), total=True)


@pytest.mark.parametrize("status", ["allowed", "allowed_warning"])
def test_a_warning_about_limits_with_a_good_answer_is_no_trouble(status: str) -> None:
    info = {"status": status, "resetsAt": 1794708291}
    assert READERS["claude"](json.dumps({"type": "rate_limit_event", "rate_limit_info": info}).encode()) == ()


def test_a_reconnection_is_a_wait_and_no_end() -> None:
    line = b'{"type":"error","message":"Reconnecting... 1/5 (unexpected status 503)"}'
    assert READERS["codex"](line) == (Retrying(words="Reconnecting... 1/5 (unexpected status 503)"),)


API_ERROR = (
    b'{"type":"system","subtype":"ui_telemetry","systemPayload":{"uiEvent":{"event.name":"qwen-code.api_error",'
    b'"error_message":"429 Rate limit reached on requests per day. Please try again in 60m0s.","status_code":429}}}\n'
)
API_ABORTED = API_ERROR.replace(
    b"429 Rate limit reached on requests per day. Please try again in 60m0s.", b"Request was aborted."
)
API_RESPONSE = b'{"systemPayload":{"uiEvent":{"event.name":"qwen-code.api_response","status_code":200}}}\n'


@pytest.mark.parametrize(
    ("record", "waits"),
    [
        *((record, True) for record in (API_RESPONSE + API_ERROR, API_ERROR + b'{"type":"user"}\n' + API_ABORTED)),
        *((record, False) for record in (API_ERROR + API_RESPONSE, API_ERROR + API_RESPONSE + API_ABORTED, b"", b"{")),
    ],
)
def test_a_wait_is_read_from_the_session_record(record: bytes, waits: bool) -> None:
    reported = READERS["session"](record)
    assert [event.words.partition(" Rate")[0] for event in reported if isinstance(event, Retrying)] == (
        ["error 429 429"] if waits else []
    )


@pytest.mark.parametrize(
    ("reported", "event"),
    [
        ({"trouble": "limit", "words": "x", "resets": "soon"}, Trouble(kind=EndingKind.LIMIT, words="x")),
        ({"trouble": "limit", "resets": [1]}, Trouble(kind=EndingKind.LIMIT, words="")),
        ({"trouble": "limit", "resets": 1e400}, Trouble(kind=EndingKind.LIMIT, words="")),
        ({"context": "full", "window": None}, Context(tokens=0, window=0)),
        ({"tokens": -5, "usd": "much"}, Spent(usage=Usage())),
    ],
    ids=["a word", "a list", "endless", "context", "usage"],
)
def test_events_of_a_script_are_validated_like_a_program_s(reported: dict[str, object], event: AgentEvent) -> None:
    line = f"runplan:tell {json.dumps(reported)}".encode()
    assert agent_of("script").read_line(line) == (event,)


def test_dollars_on_the_line_below_the_tokens_are_read() -> None:
    """aider breaks the line when a cache was both read and written."""
    lines = [b"Tokens: 10k sent, 2k cache write, 3k cache hit, 1k received.", b"Cost: $0.25 message, $0.25 session."]
    used = outcome_of("aider", lines).tally.usage
    assert used == Usage(input_tokens=10_000, output_tokens=1_000, usd=0.25)


def claudes(**result: object) -> Outcome:
    """One answer of 600 tokens, and its end."""
    text = [{"type": "text", "text": "Hm."}]
    said = {"id": "m1", "usage": {"input_tokens": 600, "output_tokens": 5}, "content": text}
    end = {"type": "result", "subtype": "success", "is_error": False, "result": "I cannot help with that.", **result}
    return outcome_of("claude", [json.dumps({"type": "assistant", "message": said}).encode(), json.dumps(end).encode()])


def test_a_refusal_without_an_error_flag_is_a_refusal() -> None:
    assert ending("claude", claudes()).kind == "success"
    refused = ending("claude", claudes(stop_reason="refusal"))
    assert (refused.kind, refused.words) == ("refusal", "I cannot help with that.")


@pytest.mark.parametrize(
    ("result", "used"),
    [
        pytest.param({"total_cost_usd": 0.5}, (600, 5, 0.5), id="dollars alone"),
        pytest.param({"total_cost_usd": 0.5, "usage": {"input_tokens": 900}}, (900, 5, 0.5), id="no models"),
        pytest.param({"usage": {"input_tokens": 0, "output_tokens": 0}}, (600, 5, 0.0), id="less than was seen"),
        pytest.param(
            {"total_cost_usd": 0.5, "modelUsage": {"m": {"inputTokens": 100, "outputTokens": 9}}},
            (600, 9, 0.5),
            id="models that used less than was seen",
        ),
        pytest.param({"modelUsage": {"m": {"inputTokens": 900, "outputTokens": 9}}}, (900, 9, 0.0), id="models"),
    ],
)
def test_claude_s_usage_is_at_least_its_messages(result: dict[str, object], used: tuple[int, int, float]) -> None:
    usage = claudes(**result).tally.usage
    assert (usage.input_tokens, usage.output_tokens, usage.usd) == used
