"""OpenAI's Responses, streamed and plain."""

import json
from collections.abc import Mapping
from typing import Any

from tests.agents.dialects.wire import Reply, bearer, document, event, need, words_of
from tests.agents.scenario import Answer, Asked, FaultKind, Heard

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "model"}
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


class Responses:
    """The dialect."""

    def serves(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        return method == "POST" and path == "/v1/responses"

    def key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        return bearer(headers)

    def plain(self, method: str, path: str, body: dict[str, Any]) -> Reply | None:
        return None

    def asked(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
        need(isinstance(body.get("model"), str), "Missing required parameter: 'model'.")
        given = body.get("input")
        items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
        need(isinstance(items, list) and bool(items), "Missing required parameter: 'input'.")
        assert isinstance(items, list)
        _paired(items)
        heard = (Heard(role="system", text=words_of(body.get("instructions"))), *(_heard(each) for each in items))
        tools: dict[str, dict[str, Any]] = {}
        for each in body.get("tools") or []:
            if each.get("type") in ("function", "custom"):
                tools[each["name"]] = each.get("parameters") or {}
            for inner in each.get("tools", []) if each.get("type") == "namespace" else []:
                tools[f"{each['name']}__{inner['name']}"] = inner.get("parameters") or {}
        form = (body.get("text") or {}).get("format", {}).get("schema")
        return Asked(model=body["model"], stream=body.get("stream") is True, heard=heard, tools=tools, form=form)

    def reply(self, path: str, asked: Asked, answer: Answer) -> Reply:
        items = _items(answer)
        tokens_in, spoken = answer.tokens
        usage = {"input_tokens": tokens_in, "input_tokens_details": {"cached_tokens": 0}}
        usage |= {"output_tokens": spoken, "output_tokens_details": {"reasoning_tokens": 0}}
        usage["total_tokens"] = tokens_in + spoken
        head = {"id": f"resp_{id(answer):x}", "object": "response", "model": asked.model, "created_at": 1_800_000_000}
        done = {**head, "status": "completed", "output": items, "usage": usage, "error": None}
        done["incomplete_details"] = None
        if not asked.stream:
            return document(200, done)
        told_events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**head, "status": "in_progress", "output": [], "usage": None}}
        ]
        for at, item in enumerate(items):
            told_events += _streamed(at, item)
        told_events.append({"type": "response.completed", "response": done})
        return Reply(
            events=tuple(event(each | {"sequence_number": n}, each["type"]) for n, each in enumerate(told_events))
        )

    def fault(self, kind: FaultKind, resets_in: int, now: float) -> Reply:
        if kind is FaultKind.OVERLOAD:
            return self.refused(503, "The server is overloaded or not ready yet.")
        if kind is FaultKind.AUTH:
            return self.refused(401, "Incorrect API key provided.")
        resets = int(now) + resets_in
        error = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}
        headers = {"x-codex-primary-used-percent": "100", "x-codex-primary-window-minutes": "300"}
        headers["x-codex-primary-reset-at"] = str(resets)
        return document(429, {"error": {**error, "resets_at": resets}}, headers)

    def refused(self, status: int, words: str) -> Reply:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        code = "invalid_api_key" if status == 401 else None
        return document(status, {"error": {"message": words, "type": kind, "param": None, "code": code}})


def _paired(items: list[Any]) -> None:
    called: set[str] = set()
    answered: set[str] = set()
    for item in items:
        need(isinstance(item, dict), "Invalid type for 'input'")
        kind = item.get("type", "message")
        if kind in _CALLS:
            called.add(str(item.get("call_id")))
        elif kind in _RESULTS:
            need(item.get("call_id") in called, f"No tool call found for function call output {item.get('call_id')}.")
            answered.add(str(item.get("call_id")))
        elif kind == "message":
            need(item.get("role") in _ROLES, "Invalid value for 'role'")
    need(called <= answered, f"No tool output found for function call {sorted(called - answered)}.")


def _heard(item: dict[str, Any]) -> Heard:
    kind = item.get("type", "message")
    if kind in _RESULTS:
        return Heard(role="tool", text=words_of(item.get("output")))
    if kind == "message":
        return Heard(role=_ROLES[item["role"]], text=words_of(item.get("content")))
    return Heard(role="model", text="")


def _items(answer: Answer) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        message = {"type": "message", "id": f"msg_{id(answer):x}", "role": "assistant", "status": "completed"}
        made.append({**message, "content": [part]})
    if answer.call is not None:
        call = {"id": f"fc_{answer.call.id}", "call_id": f"call_{answer.call.id}", "name": answer.call.name}
        if answer.call.name.startswith("mcp__"):
            call["namespace"], _, call["name"] = answer.call.name.rpartition("__")
        if isinstance(answer.call.given, str):
            made.append({**call, "type": "custom_tool_call", "input": answer.call.given, "status": "completed"})
        else:
            arguments = json.dumps(answer.call.given)
            made.append({**call, "type": "function_call", "arguments": arguments, "status": "completed"})
    return made


def _streamed(at: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    if item["type"] == "message":
        place = {"item_id": item["id"], "output_index": at, "content_index": 0}
        deltas.append({"type": "response.output_text.delta", **place, "delta": item["content"][0]["text"]})
    return [
        {"type": "response.output_item.added", "output_index": at, "item": {**item, "status": "in_progress"}},
        *deltas,
        {"type": "response.output_item.done", "output_index": at, "item": item},
    ]
