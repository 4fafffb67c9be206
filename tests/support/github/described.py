"""Compares answers of the stand-in with GitHub's published OpenAPI description (openapi.json, an excerpt).

The excerpt holds the fields that the stand-in uses. It is made by:
python -m tests.support.github.described api.github.com.json
"""

import json
import sys
from pathlib import Path
from typing import Any

EXCERPT = Path(__file__).parent / "openapi.json"
#: Paths of the stand-in that GitHub's description spells otherwise.
SPELLED = {"/rules/branches/{branch+}": "/rules/branches/{branch}"}
KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def described(path: str) -> str:
    if path.startswith("/app/"):
        return path
    return "/repos/{owner}/{repo}" + SPELLED.get(path, path)


def faults(schema: dict[str, Any], value: Any, where: str) -> list[str]:
    """How the value differs from the schema: unknown fields and wrong types."""
    if options := schema.get("options"):
        found = [faults(option, value, where) for option in options]
        return min(found, key=len)
    if value is None:
        return [] if schema.get("nullable") else [f"{where}: null is not described"]
    kind = schema.get("type")
    if kind and (not isinstance(value, KINDS[kind]) or (kind == "integer" and isinstance(value, bool))):
        return [f"{where}: {type(value).__name__} instead of {kind}"]
    if (allowed := schema.get("enum")) and value not in allowed:
        return [f"{where}: {value!r} is none of {allowed}"]
    if isinstance(value, list):
        return [fault for item in value for fault in faults(schema.get("items", {}), item, f"{where}[]")]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        unknown = [f"{where}.{name}: not described" for name in value if name not in known]
        inner = [
            fault for name in value if name in known for fault in faults(known[name], value[name], f"{where}.{name}")
        ]
        return unknown + inner
    return []


# --- making the excerpt ----------------------------------------------------------------------------------


class Excerpt:
    """Cuts the description down to the fields of sample answers."""

    def __init__(self, whole: dict[str, Any]) -> None:
        self.whole = whole

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            node: Any = self.whole
            for part in schema["$ref"].removeprefix("#/").split("/"):
                node = node[part]
            schema = node
        return schema

    def cut(self, schema: dict[str, Any], value: Any) -> dict[str, Any]:
        schema = self.resolve(schema)
        options = [self.resolve(one) for key in ("oneOf", "anyOf") for one in schema.get(key, ())]
        if "allOf" in schema:
            merged: dict[str, Any] = {"type": "object", "properties": {}}
            for one in schema["allOf"]:
                merged["properties"] |= self.resolve(one).get("properties", {})
            schema = merged
        if options:
            cut = {"options": [self.cut(option, value) for option in options]}
            if schema.get("nullable") or any(option.get("nullable") for option in options):
                cut["options"].append({"nullable": True})
            return cut
        made: dict[str, Any] = {key: schema[key] for key in ("type", "nullable", "enum") if key in schema}
        if isinstance(value, list):
            sample: Any = {}
            for item in value:
                sample = _joined(sample, item)
            made["items"] = self.cut(schema.get("items", {}), sample)
        if isinstance(value, dict):
            known = schema.get("properties", {})
            made["properties"] = {name: self.cut(known[name], value[name]) for name in value if name in known}
        return made


def _joined(one: Any, other: Any) -> Any:
    """A sample with the fields of both."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {name: _joined(one.get(name), value) for name, value in other.items()}
    return one if other is None else other


def excerpt(whole: dict[str, Any], answers: list[tuple[str, str, int, Any]]) -> dict[str, Any]:
    """The schemas of these answers, by `METHOD path status`."""
    made: dict[str, Any] = {}
    cutter = Excerpt(whole)
    for method, path, status, answer in answers:
        operation = whole["paths"][described(path)][method.lower()]
        response = cutter.resolve(operation["responses"][str(status)])
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        made[f"{method} {described(path)} {status}"] = cutter.cut(schema, answer) if schema else {}
    return made


if __name__ == "__main__":
    recorded = json.loads(sys.stdin.read())
    description = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    made = sorted(excerpt(description, recorded).items())
    lines = (f"{json.dumps(call)}: {json.dumps(schema, sort_keys=True)}" for call, schema in made)
    EXCERPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
