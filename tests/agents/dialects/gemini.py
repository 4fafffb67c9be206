"""Gemini's generateContent and streamGenerateContent, with the counting of tokens and the list of models."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.agents.dialects.wire import Reply, document, event, need
from tests.agents.scenario import Answer, Asked, FaultKind, Heard

_PATH = re.compile(r"/v1(?:beta)?/models/([\w.-]+):(generateContent|streamGenerateContent|countTokens)")
_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 503: "UNAVAILABLE"}
_QUOTA = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"


class Gemini:
    """The dialect."""

    def serves(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        if method == "GET":
            return path == "/v1beta/models"
        return method == "POST" and _PATH.fullmatch(path) is not None

    def key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        return headers.get("x-goog-api-key", "") or query.get("key", "")

    def plain(self, method: str, path: str, body: dict[str, Any]) -> Reply | None:
        if method == "GET":
            return document(200, {"models": [{"name": "models/gemini-scripted"}]})
        if path.endswith(":countTokens"):
            return document(200, {"totalTokens": len(json.dumps(body)) // 4})
        return None

    def asked(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
        contents = body.get("contents")
        need(isinstance(contents, list) and bool(contents), "contents is not specified")
        assert isinstance(contents, list)
        heard = [Heard(role="system", text=_words((body.get("systemInstruction") or {}).get("parts", [])))]
        for content in contents:
            need(isinstance(content, dict) and content.get("role") in ("user", "model"), "Please use a valid role")
            need(bool(content.get("parts")), "contents.parts must not be empty")
            heard += _heard(content)
        need(contents[-1]["role"] == "user", "Please ensure that multiturn requests end with a user role")
        offered = [one for each in body.get("tools") or [] for one in each.get("functionDeclarations", [])]
        tools = {one["name"]: one.get("parametersJsonSchema") or one.get("parameters") or {} for one in offered}
        config = body.get("generationConfig") or {}
        found = _PATH.fullmatch(path)
        return Asked(
            model=found[1] if found else "",
            stream=":stream" in path,
            heard=tuple(heard),
            tools=tools,
            form=config.get("responseJsonSchema") or config.get("responseSchema"),
        )

    def reply(self, path: str, asked: Asked, answer: Answer) -> Reply:
        parts: list[dict[str, Any]] = [{"text": answer.text}] if answer.text else []
        if answer.call is not None:
            parts.append({"functionCall": {"name": answer.call.name, "args": answer.call.given}})
        tokens_in, spoken = answer.tokens
        usage = {"promptTokenCount": tokens_in, "candidatesTokenCount": spoken, "totalTokenCount": tokens_in + spoken}
        head = {"modelVersion": asked.model, "responseId": f"r{id(answer):x}"}
        last = {"finishReason": "STOP", "index": 0}
        if not asked.stream:
            whole = {"content": {"role": "model", "parts": parts}, **last}
            return document(200, {**head, "candidates": [whole], "usageMetadata": usage})
        pieces = [{"content": {"role": "model", "parts": [part]}, "index": 0} for part in parts]
        pieces[-1] |= last
        return Reply(events=tuple(event({**head, "candidates": [each], "usageMetadata": usage}) for each in pieces))

    def fault(self, kind: FaultKind, resets_in: int, now: float) -> Reply:
        if kind is FaultKind.OVERLOAD:
            return self.refused(503, "The model is overloaded. Please try again later.")
        if kind is FaultKind.AUTH:
            return self.refused(401, "API key not valid. Please pass a valid API key.")
        metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
        violation = {"quotaMetric": metric, "quotaId": _QUOTA, "quotaValue": "50"}
        details = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}]
        words = "You exceeded your current quota, please check your plan and billing details."
        error = {"code": 429, "message": words, "status": "RESOURCE_EXHAUSTED", "details": details}
        return document(429, {"error": error})

    def refused(self, status: int, words: str) -> Reply:
        error = {"code": status, "message": words, "status": _STATUS.get(status, "INTERNAL")}
        return document(status, {"error": error})


def _heard(content: dict[str, Any]) -> list[Heard]:
    said = []
    for part in content["parts"]:
        if "functionResponse" in part:
            said.append(Heard(role="tool", text=json.dumps(part["functionResponse"].get("response"))))
        else:
            said.append(Heard(role=content["role"], text=part.get("text", "")))
    return said


def _words(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part.get("text", "") for part in parts)
