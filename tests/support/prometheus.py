"""Reads the text format of Prometheus as strictly as its page says."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
_LINE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL},?)*)\}})? (\S+)")
_HEAD = re.compile(rf"# (?:HELP {_NAME} [^\n]*|TYPE {_NAME} (?:counter|gauge))")


def read(text: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of every line; a line that means nothing is an error."""
    assert not text or text.endswith("\n")
    found = []
    for line in text.split("\n")[:-1]:
        if line.startswith("#"):
            assert _HEAD.fullmatch(line), line
            continue
        match = _LINE.fullmatch(line)
        assert match, line
        labels = {name: _unescaped(value) for name, value in re.findall(_LABEL, match[2] or "")}
        found.append((match[1], labels, float(match[5])))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r'\\(["\\n])', lambda match: {"n": "\n"}.get(match[1], match[1]), text)
