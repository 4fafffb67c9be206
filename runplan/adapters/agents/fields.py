"""Reads fields of the JSON that agents print. A field that is missing, or of another type, is empty or zero."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from runplan.adapters.agents.budgets import tokens_in
from runplan.adapters.store.files import read_text
from runplan.domain.run.dispatch import Context, ToolEnded, ToolUsed, Usage

JsonObject: TypeAlias = Mapping[str, object]

_LONGEST_OUTPUT = 10_000  #: programs shorten a command's output before they send it to the model
_MOST = 2**53  #: no count of tokens is larger; beyond it floats are not exact

#: The parameters in which tools name the file they use.
_PATHS = ("file_path", "filePath", "path", "notebook_path", "absolute_path")
#: Those in which they name a command, or what they look for.
_DETAILS = ("command", "pattern", "query", "url", "description")


def parse_object(line: bytes) -> JsonObject | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def read_json(path: Path) -> JsonObject:
    """The object in a configuration file; an empty one when it cannot be read."""
    return parse_object((read_text(path) or "").encode()) or {}


def get_value(tree: object, *names: str) -> Any:
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def get_text(tree: object, *names: str) -> str:
    """The text there; a lone surrogate, which JSON can spell and nothing can print, becomes a question mark."""
    value = get_value(tree, *names)
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def get_count(tree: object, *names: str) -> int:
    """The number there, if it can be one of tokens or seconds."""
    return int(get_number(tree, *names))


def get_number(tree: object, *names: str) -> float:
    value = get_value(tree, *names)
    is_sound = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST
    return float(value) if is_sound else 0.0


def get_objects(tree: object, *names: str) -> Iterator[JsonObject]:
    values = get_value(tree, *names)
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, dict))


def read_usage(tree: object, cached: str) -> Usage:
    """The usage in an object; the field `cached` has the part of the sent tokens that came from a cache."""
    sent, answered, read = (get_count(tree, name) for name in ("input_tokens", "output_tokens", cached))
    return Usage(input_tokens=sent, output_tokens=answered, cached_tokens=read)


def read_tool(name: str, parameters: object, *, denied: bool = False) -> ToolUsed:
    path, detail = (next(filter(None, (get_text(parameters, key) for key in keys)), "") for keys in (_PATHS, _DETAILS))
    return ToolUsed(tool=name[:200], path=path[:4_096], detail=detail[:4_096], denied=denied)


def end_tool(output: str, code: object) -> ToolEnded:
    """The end of a command; an exit code that is none is not shown."""
    return ToolEnded(output=output[-_LONGEST_OUTPUT:], ending=f"exit code {code}" if isinstance(code, int) else "")


def estimate_context(message: str, output: str = "", *, resent: bool = False) -> Context:
    """The context used by a message and an output; `resent`: it is sent with the whole conversation again."""
    tokens = tokens_in(len(message) + min(len(output), _LONGEST_OUTPUT))
    return Context(tokens=tokens, estimated=True, resent=resent)
