"""Compares answers of the stand-in with GitHub's published OpenAPI description (openapi.json, an excerpt).

The excerpt holds the fields that the stand-in uses, as api.github.com.json of github/rest-api-description has them.
"""

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
