"""OpenAI's Chat Completions, streamed and plain, and the list of models."""

import json
from collections.abc import Mapping
from typing import Any

from tests.agents.dialects.wire import Reply, bearer, document, event, need, words_of
from tests.agents.scenario import Answer, Asked, FaultKind, Heard

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "model", "tool": "tool"}


class Chat:
    """The dialect."""

    def serves(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        if method == "GET":
            return path == "/v1/models" and "anthropic-version" not in headers
        return method == "POST" and path == "/v1/chat/completions"

    def key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        return bearer(headers)

    def plain(self, method: str, path: str, body: dict[str, Any]) -> Reply | None:
        if method == "GET":
            model = {"id": "gpt-scripted", "object": "model", "created": 1, "owned_by": "nobody"}
            return document(200, {"object": "list", "data": [model]})
        return None

    def asked(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
        need(isinstance(body.get("model"), str), "you must provide a model parameter")
        messages = body.get("messages")
        need(isinstance(messages, list) and bool(messages), "'messages' must not be empty")
        assert isinstance(messages, list)
        _paired(messages)
        heard = tuple(Heard(role=_ROLES[each["role"]], text=words_of(each.get("content"))) for each in messages)
        offered = [each.get("function", {}) for each in body.get("tools") or []]
        tools = {each["name"]: each.get("parameters") or {} for each in offered if "name" in each}
        form = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
        return Asked(model=body["model"], stream=body.get("stream") is True, heard=heard, tools=tools, form=form)

    def reply(self, path: str, asked: Asked, answer: Answer) -> Reply:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.call is not None:
            called = {"name": answer.call.name, "arguments": json.dumps(answer.call.given)}
            message["tool_calls"] = [{"id": f"call_{answer.call.id}", "type": "function", "function": called}]
        tokens_in, spoken = answer.tokens
        usage = {"prompt_tokens": tokens_in, "completion_tokens": spoken, "total_tokens": tokens_in + spoken}
        head = {"id": f"chatcmpl-{id(answer):x}", "created": 1_800_000_000, "model": asked.model}
        stop = "tool_calls" if answer.call else "stop"
        if not asked.stream:
            choice = {"index": 0, "message": message, "finish_reason": stop, "logprobs": None}
            return document(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = {**head, "object": "chat.completion.chunk"}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"content": answer.text}]
        deltas += [{"tool_calls": [{"index": 0, **each}]} for each in message.get("tool_calls", [])]
        events = [_chunk(chunk, delta, None) for delta in deltas]
        events.append(_chunk(chunk, {}, stop))
        events.append(event({**chunk, "choices": [], "usage": usage}))
        return Reply(events=(*events, b"data: [DONE]\n\n"))

    def fault(self, kind: FaultKind, resets_in: int, now: float) -> Reply:
        if kind is FaultKind.OVERLOAD:
            return self.refused(503, "The server is overloaded or not ready yet.")
        if kind is FaultKind.AUTH:
            return self.refused(401, "Incorrect API key provided.")
        minutes = f"{resets_in // 60}m{resets_in % 60}s"
        words = (
            "Rate limit reached for gpt-scripted in organization org-scripted on requests per day (RPD): "
            f"Limit 200, Used 200, Requested 1. Please try again in {minutes}."
        )
        error = {"message": words, "type": "requests", "param": None, "code": "rate_limit_exceeded"}
        headers = {"x-ratelimit-limit-requests": "200", "x-ratelimit-remaining-requests": "0"}
        return document(429, {"error": error}, headers | {"x-ratelimit-reset-requests": minutes})

    def refused(self, status: int, words: str) -> Reply:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        code = "invalid_api_key" if status == 401 else None
        return document(status, {"error": {"message": words, "type": kind, "param": None, "code": code}})


def _chunk(head: dict[str, Any], delta: dict[str, Any], stop: str | None) -> bytes:
    return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": stop, "logprobs": None}]})


def _paired(messages: list[Any]) -> None:
    """Every use of a tool is answered before anybody else speaks."""
    open_ids: set[str] = set()
    for message in messages:
        need(isinstance(message, dict) and message.get("role") in _ROLES, "invalid role in 'messages'")
        if message["role"] == "tool":
            need(message.get("tool_call_id") in open_ids, "'tool' must follow a message with 'tool_calls'")
            open_ids.discard(message["tool_call_id"])
            continue
        need(not open_ids, "'tool_calls' must be followed by tool messages responding to each 'tool_call_id'")
        open_ids = {str(each.get("id")) for each in message.get("tool_calls") or []}
    need(not open_ids, "'tool_calls' must be followed by tool messages responding to each 'tool_call_id'")
