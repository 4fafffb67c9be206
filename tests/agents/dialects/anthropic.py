"""Anthropic's Messages, streamed and plain, with the counting of tokens and the list of models."""

import json
from collections.abc import Mapping
from typing import Any

from tests.agents.dialects.wire import Reply, bearer, document, event, need, words_of
from tests.agents.scenario import Answer, Asked, FaultKind, Heard

_MODEL = "claude-sonnet-5"
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 529: "overloaded_error"}


class Anthropic:
    """The dialect."""

    def serves(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        if method == "GET":
            return path.startswith("/v1/models") and "anthropic-version" in headers
        return method == "POST" and path in ("/v1/messages", "/v1/messages/count_tokens")

    def key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        return headers.get("x-api-key", "") or bearer(headers)

    def plain(self, method: str, path: str, body: dict[str, Any]) -> Reply | None:
        if method == "GET":
            model = {"type": "model", "id": _MODEL, "display_name": "Scripted", "created_at": "2026-01-01T00:00:00Z"}
            return document(200, {"data": [model], "has_more": False, "first_id": _MODEL, "last_id": _MODEL})
        if path.endswith("/count_tokens"):
            need(isinstance(body.get("messages"), list), "messages: Field required")
            return document(200, {"input_tokens": len(json.dumps(body)) // 4})
        return None

    def asked(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
        need("anthropic-version" in headers, "anthropic-version: header is required")
        need(isinstance(body.get("model"), str), "model: Field required")
        need(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: Field required")
        messages = body.get("messages")
        need(isinstance(messages, list) and bool(messages), "messages: at least one message is required")
        assert isinstance(messages, list)
        _paired(messages, spoken_for="mid-conversation-system" in headers.get("anthropic-beta", ""))
        heard = [Heard(role="system", text=words_of(body.get("system")))]
        for message in messages:
            heard += _heard(message)
        tools = {each["name"]: each.get("input_schema", {}) for each in body.get("tools", []) if "name" in each}
        return Asked(model=body["model"], stream=body.get("stream") is True, heard=tuple(heard), tools=tools)

    def reply(self, path: str, asked: Asked, answer: Answer) -> Reply:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
        if answer.call is not None:
            call = answer.call
            blocks.append({"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.given})
        tokens_in, spoken = answer.tokens
        usage = {"input_tokens": tokens_in, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        message: dict[str, Any] = {
            "id": f"msg_{id(answer):x}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
        }
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage | {"output_tokens": 1}}
        stop = {"stop_reason": "tool_use" if answer.call else "end_turn", "stop_sequence": None}
        if not asked.stream:
            return document(200, message | {"content": blocks, "usage": usage | {"output_tokens": spoken}} | stop)
        events = [event({"type": "message_start", "message": message}, "message_start")]
        for at, block in enumerate(blocks):
            events += _block(at, block)
        events.append(
            event({"type": "message_delta", "delta": stop, "usage": {"output_tokens": spoken}}, "message_delta")
        )
        events.append(event({"type": "message_stop"}, "message_stop"))
        return Reply(events=tuple(events))

    def fault(self, kind: FaultKind, resets_in: int, now: float) -> Reply:
        if kind is FaultKind.OVERLOAD:
            return self.refused(529, "Overloaded")
        if kind is FaultKind.AUTH:
            return self.refused(401, "invalid x-api-key")
        resets = int(now) + resets_in
        unified = {"status": "rejected", "reset": str(resets), "representative-claim": "five_hour"}
        headers = {f"anthropic-ratelimit-unified-{name}": value for name, value in unified.items()}
        headers |= {"anthropic-ratelimit-unified-overage-status": "rejected", "retry-after": str(resets_in)}
        error = {"type": "rate_limit_error", "message": f"Claude AI usage limit reached|{resets}"}
        return document(429, {"type": "error", "error": error}, headers)

    def refused(self, status: int, words: str) -> Reply:
        error = {"type": _TYPES.get(status, "api_error"), "message": words}
        return document(status, {"type": "error", "error": error})


def _paired(messages: list[Any], *, spoken_for: bool) -> None:
    """Every use of a tool is answered in the very next message; the system speaks between only by agreement."""
    open_ids: set[str] = set()
    for message in messages:
        need(isinstance(message, dict), "messages: Input should be a valid dictionary")
        if spoken_for and message.get("role") == "system":
            continue
        need(message.get("role") in ("user", "assistant"), "messages.role: Input should be 'user' or 'assistant'")
        content = message.get("content")
        need(isinstance(content, (str, list)) and bool(content), "messages.content: must not be empty")
        blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        results = {each.get("tool_use_id") for each in blocks if each.get("type") == "tool_result"}
        need(
            not open_ids - results, "messages: `tool_use` ids were found without `tool_result` blocks immediately after"
        )
        need(results <= open_ids, "messages: unexpected `tool_use_id` found in `tool_result` blocks")
        open_ids = {str(each.get("id")) for each in blocks if each.get("type") == "tool_use"}
    need(not open_ids, "messages: the last `tool_use` has no `tool_result`")


def _heard(message: dict[str, Any]) -> list[Heard]:
    role = {"assistant": "model"}.get(message["role"], message["role"])
    content = message["content"]
    if isinstance(content, str):
        return [Heard(role=role, text=content)]
    return [
        Heard(role="tool" if each.get("type") == "tool_result" else role, text=words_of(each))
        for each in content
        if isinstance(each, dict)
    ]


def _block(at: int, block: dict[str, Any]) -> list[bytes]:
    if block["type"] == "text":
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty = block | {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    return [
        event({"type": "content_block_start", "index": at, "content_block": empty}, "content_block_start"),
        event({"type": "content_block_delta", "index": at, "delta": delta}, "content_block_delta"),
        event({"type": "content_block_stop", "index": at}, "content_block_stop"),
    ]
