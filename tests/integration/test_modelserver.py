"""The scripted model is as strict as the providers it stands for, and says what its scenario says."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.agents.modelserver import ModelServer
from tests.agents.scenario import KEY, SUBMIT, Fault, FaultKind, Run, Say, Scenario, Write

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = "# Do the thing\n\n- Worktree: /tree\n"
PART = "# Do the thing"
SCENARIO = Scenario(parts={PART: (Run("make it"), Write("a.txt", "a\nb\n"), Say("Done."))}, tokens=(7, 3))


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        lines = [line[6:] for line in self.body.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


def ask(
    server: ModelServer, path: str, body: object, *, key: str = KEY, method: str = "POST", timeout: float = 10
) -> Got:
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    headers |= {"x-api-key": key, "authorization": f"Bearer {key}", "x-goog-api-key": key} if key else {}
    if "messages" not in path:
        del headers["anthropic-version"]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        server.url + path, data=data if method == "POST" else None, headers=headers, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return Got(status=answer.status, headers=dict(answer.headers), body=answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Got(status=error.code, headers=dict(error.headers), body=error.read().decode())


# --- one way to ask each provider the same ------------------------------------------------------------


def anthropic(turns: int = 0, tool: str = "Bash", **more: object) -> tuple[str, dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
    for n in range(turns):
        use = {"type": "tool_use", "id": f"t{n}", "name": tool, "input": {}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "Working."}, use]})
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": [{"type": "text", "text": f"result {n}"}]}
        messages.append({"role": "user", "content": [result]})
    tools = [{"name": "Bash", "input_schema": {"required": ["command", "description"]}}, {"name": "Write"}]
    return "/v1/messages", {"model": "m", "max_tokens": 9, "messages": messages, "tools": tools, **more}


def chat(turns: int = 0, **more: object) -> tuple[str, dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
    for n in range(turns):
        call = {"id": f"t{n}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"t{n}", "content": f"result {n}"})
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("bash", "write")]
    return "/v1/chat/completions", {"model": "m", "messages": messages, "tools": tools, **more}


def responses(turns: int = 0, **more: object) -> tuple[str, dict[str, Any]]:
    items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}]
    for n in range(turns):
        items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Working."}]})
        items.append({"type": "function_call", "call_id": f"t{n}", "name": "exec_command", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"t{n}", "output": f"result {n}"})
    tools: list[dict[str, Any]] = [{"type": "function", "name": "exec_command", "parameters": {}}]
    tools.append({"type": "custom", "name": "apply_patch"})
    return "/v1/responses", {"model": "m", "input": items, "tools": tools, **more}


def gemini(turns: int = 0, **more: object) -> tuple[str, dict[str, Any]]:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": PROMPT}]}]
    for n in range(turns):
        contents.append({"role": "model", "parts": [{"functionCall": {"name": "run_shell_command", "args": {}}}]})
        result = {"name": "run_shell_command", "response": {"output": f"result {n}"}}
        contents.append({"role": "user", "parts": [{"functionResponse": result}]})
    offered = [{"name": "run_shell_command"}, {"name": "write_file"}]
    way = "streamGenerateContent?alt=sse" if more.pop("stream", False) else "generateContent"
    body = {"contents": contents, "tools": [{"functionDeclarations": offered}], **more}
    return f"/v1beta/models/m:{way}", body


ASKERS: dict[str, Callable[..., tuple[str, Any]]] = {
    "anthropic": anthropic,
    "chat": chat,
    "responses": responses,
    "gemini": gemini,
}
each_dialect = pytest.mark.parametrize("asker", ASKERS.values(), ids=ASKERS.keys())


# --- strictness ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/v1/completions", "/v1/messages/batches", "/v1beta/models/m:embedContent"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    with ModelServer(SCENARIO) as server:
        assert ask(server, path, {}).status == 404
        assert ask(server, path, {}, method="GET").status == 404
        assert [seen.status for seen in server.seen] == [404, 404]


@each_dialect
@pytest.mark.parametrize("key", ["", "sk-of-somebody-else"], ids=["none", "wrong"])
def test_without_the_key_nothing_is_answered(asker: Callable[..., tuple[str, Any]], key: str) -> None:
    with ModelServer(SCENARIO) as server:
        got = ask(server, *asker(), key=key)
    assert got.status == 401
    assert "error" in got.json


@each_dialect
@pytest.mark.parametrize("body", [b"{", b"[]", b"{}"], ids=["no JSON", "no object", "nothing in it"])
def test_a_malformed_body_is_refused(asker: Callable[..., tuple[str, Any]], body: bytes) -> None:
    with ModelServer(SCENARIO) as server:
        assert ask(server, asker()[0], body).status == 400


def without_result(asker: Callable[..., tuple[str, Any]]) -> tuple[str, Any]:
    path, body = asker(1)
    body.get("messages", body.get("input", [])).pop()
    return path, body


@pytest.mark.parametrize("asker", [anthropic, chat, responses])
def test_a_tool_without_its_result_is_refused(asker: Callable[..., tuple[str, Any]]) -> None:
    with ModelServer(SCENARIO) as server:
        assert ask(server, *without_result(asker)).status == 400


def test_the_system_speaks_in_the_middle_only_by_agreement() -> None:
    path, body = anthropic()
    body["messages"].append({"role": "system", "content": "be brief"})
    with ModelServer(SCENARIO) as server:
        assert ask(server, path, body).status == 400


# --- answers ------------------------------------------------------------------------------------------


def test_messages_are_streamed_with_a_tool_of_those_offered() -> None:
    with ModelServer(SCENARIO) as server:
        events = ask(server, *anthropic(stream=True)).events
    assert [each["type"] for each in events][:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert events[4]["content_block"]["name"] == "Bash"
    given = json.loads(events[5]["delta"]["partial_json"])
    assert given == {"command": "make it", "description": "x"}
    assert events[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 3},
    }
    assert events[0]["message"]["usage"]["input_tokens"] == 7


def test_responses_are_streamed_to_their_end() -> None:
    with ModelServer(SCENARIO) as server:
        events = ask(server, *responses(stream=True)).events
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    call = events[-1]["response"]["output"][-1]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "exec_command",
        {"cmd": "make it"},
    )
    assert events[-1]["response"]["usage"]["total_tokens"] == 10


def test_a_file_becomes_a_patch_where_patches_are_offered() -> None:
    with ModelServer(SCENARIO) as server:
        call = ask(server, *responses(1)).json["output"][-1]
    assert call["type"] == "custom_tool_call"
    assert call["input"] == "*** Begin Patch\n*** Add File: a.txt\n+a\n+b\n*** End Patch\n"


@pytest.mark.parametrize("stream", [False, True])
def test_chat_answers_in_one_piece_and_in_many(stream: bool) -> None:
    with ModelServer(SCENARIO) as server:
        got = ask(server, *chat(1, stream=stream))
    if stream:
        assert got.body.endswith("data: [DONE]\n\n")
        calls = [each["choices"][0]["delta"].get("tool_calls") for each in got.events[:-1]]
        call = next(each[0] for each in calls if each)
        assert got.events[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert got.events[-1]["usage"]["prompt_tokens"] == 7
    else:
        call = got.json["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"filePath": "/tree/a.txt", "content": "a\nb\n"}


@pytest.mark.parametrize("stream", [False, True])
def test_gemini_answers_in_one_piece_and_in_many(stream: bool) -> None:
    with ModelServer(SCENARIO) as server:
        got = ask(server, *gemini(stream=stream))
    last = got.events[-1] if stream else got.json
    assert last["candidates"][0]["content"]["parts"][-1]["functionCall"] == {
        "name": "run_shell_command",
        "args": {"command": "make it"},
    }
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"]["totalTokenCount"] == 10


@each_dialect
def test_the_turn_follows_from_the_conversation(asker: Callable[..., tuple[str, Any]]) -> None:
    """Nothing is counted in the server, so a request that is sent again gets the same answer."""
    with ModelServer(SCENARIO) as server:
        for turns in (0, 2, 2, 1):
            assert ask(server, *asker(turns)).status == 200
    assert [seen.turn for seen in server.seen] == [0, 2, 2, 1]
    assert {seen.part for seen in server.seen} == {PART}
    assert [text for text in server.results if "result 0" in text]
    assert "Done." in ask_last(asker)


def ask_last(asker: Callable[..., tuple[str, Any]]) -> str:
    with ModelServer(SCENARIO) as server:
        return ask(server, *asker(2)).body


def test_a_program_without_tools_reads_everything_in_one_answer() -> None:
    with ModelServer(SCENARIO) as server:
        said = ask(server, *chat(tools=[])).json["choices"][0]["message"]["content"]
    assert "a.txt\n```\n<<<<<<< SEARCH\n=======\na\nb\n>>>>>>> REPLACE\n```" in said
    assert said.endswith("Done.")


def test_a_program_whose_work_ends_by_a_command_gets_that_command() -> None:
    path, body = chat(2)
    body["messages"].insert(0, {"role": "system", "content": f"To finish: echo {SUBMIT}"})
    with ModelServer(SCENARIO) as server:
        call = ask(server, path, body).json["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"])["command"] == f"echo {SUBMIT} && echo Done."


def test_a_tool_that_is_no_longer_offered_is_called_by_the_name_it_had() -> None:
    """So that a program that only hides its tools is found out."""
    with ModelServer(SCENARIO) as server:
        ask(server, *anthropic())
        reading = anthropic(1, tools=[{"name": "Read", "input_schema": {}}])
        assert ask(server, *reading).json["content"][-1]["name"] == "Write"


def test_a_request_outside_the_scenario_is_answered_and_marked() -> None:
    form = {"properties": {"choice": {"type": "string", "enum": ["small", "large"]}, "why": {"type": "string"}}}
    with ModelServer(SCENARIO) as server:
        got = ask(server, *gemini(generationConfig={"responseJsonSchema": form}))
        assert ask(server, "/v1/messages/count_tokens", anthropic()[1]).json["input_tokens"] > 0
        assert ask(server, "/v1/models", {}, method="GET").json["data"]
        assert ask(server, "/v1beta/models", {}, method="GET").json["models"]
    words = got.json["candidates"][0]["content"]["parts"][0]["text"]
    assert json.loads(words) == {"choice": "small", "why": "scripted"}
    assert [seen.part for seen in server.seen] == ["", "", "", ""]


# --- faults -------------------------------------------------------------------------------------------


def faulty(kind: FaultKind, times: int | None = None) -> Scenario:
    return Scenario(parts=SCENARIO.parts, faults=(Fault(kind=kind, times=times),), resets_in=600)


@each_dialect
@pytest.mark.parametrize(
    ("kind", "statuses"),
    [(FaultKind.LIMIT, {429}), (FaultKind.OVERLOAD, {503, 529}), (FaultKind.AUTH, {401})],
)
def test_an_error_has_the_providers_shape(
    asker: Callable[..., tuple[str, Any]], kind: FaultKind, statuses: set[int]
) -> None:
    with ModelServer(faulty(kind, times=1)) as server:
        first, second = ask(server, *asker()), ask(server, *asker())
    assert first.status in statuses
    assert first.json["error"]["message"]
    assert second.status == 200, "once was asked for"
    assert [seen.fault for seen in server.seen] == [kind, ""]


def test_a_limit_says_when_it_ends() -> None:
    with ModelServer(faulty(FaultKind.LIMIT)) as server:
        by = {name: ask(server, *asker()) for name, asker in ASKERS.items()}
    soon = time.time() + 600
    assert abs(float(by["anthropic"].headers["anthropic-ratelimit-unified-reset"]) - soon) < 60
    assert abs(float(by["anthropic"].json["error"]["message"].partition("|")[2]) - soon) < 60
    assert abs(by["responses"].json["error"]["resets_at"] - soon) < 60
    assert "try again in 10m0s" in by["chat"].json["error"]["message"]
    assert "PerDay" in by["gemini"].json["error"]["details"][0]["violations"][0]["quotaId"]


@each_dialect
@pytest.mark.parametrize("kind", [FaultKind.HANG, FaultKind.STALL])
def test_a_silence_lasts_until_the_server_ends(asker: Callable[..., tuple[str, Any]], kind: FaultKind) -> None:
    with ModelServer(faulty(kind)) as server, pytest.raises(OSError, match="timed out"):
        ask(server, *asker(stream=True), timeout=0.1)
    assert server.faulted() == 1
    assert server.seen[0].status == (0 if kind is FaultKind.HANG else 200)


@pytest.mark.parametrize(
    ("asker", "kind", "word"),
    [
        (anthropic, FaultKind.REFUSAL, '"stop_reason": "refusal"'),
        (anthropic, FaultKind.LENGTH, '"stop_reason": "max_tokens"'),
        (chat, FaultKind.REFUSAL, '"finish_reason": "content_filter"'),
        (chat, FaultKind.LENGTH, '"finish_reason": "length"'),
        (responses, FaultKind.REFUSAL, '"type": "refusal"'),
        (responses, FaultKind.LENGTH, '"reason": "max_output_tokens"'),
        (gemini, FaultKind.REFUSAL, '"finishReason": "SAFETY"'),
        (gemini, FaultKind.LENGTH, '"finishReason": "MAX_TOKENS"'),
    ],
)
def test_an_answer_can_be_cut_short(asker: Callable[..., tuple[str, Any]], kind: FaultKind, word: str) -> None:
    with ModelServer(faulty(kind)) as server:
        assert word in ask(server, *asker(stream=True)).body


def test_any_number_of_tokens_can_be_claimed() -> None:
    with ModelServer(Scenario(parts=SCENARIO.parts, tokens=(190_000, 10))) as server:
        assert ask(server, *anthropic()).json["usage"]["input_tokens"] == 190_000
