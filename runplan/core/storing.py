"""Tells a file that git cannot store, which is its maker's doing, from a git or a disk that is out of order."""

from __future__ import annotations

import re

from runplan.core.gitfacts import Unstored

#: What speaks of the place and not of the file.
_PLACE = re.compile(
    r"\.lock\b|No space left|quota|Read-only file system|Input/output error|repository database|object database"
)
#: How git begins to say that it does not take a file; the group is its path.
_REFUSED = (
    re.compile(r"failed to encode '(?P<path>.+)' from \S+ to"),
    re.compile(r"BOM is (?:required|prohibited) in '(?P<path>.+)' if encoded as"),
    re.compile(r"encoding '(?P<path>.+)' from \S+ to \S+ and back is not the same"),
    re.compile(r"(?P<path>)true/false are no valid working-tree-encodings"),
    re.compile(r"C?R?LF would be replaced by \w+ in (?P<path>.+)"),
    re.compile(r"fatal: (?P<path>.+): '.*' is outside repository"),
    re.compile(r"Unable to process path (?P<path>.+)"),
)
#: A filter of the user's that must succeed, and did not.
_FILTER = re.compile(r"(?:fatal|error): (?P<path>[^:]+): clean filter '.*' failed")
_LONGEST = 8_192  #: characters at the end of git's words that are looked at
_SAID = re.compile(r"(?:fatal|error): ")


def unstored(said: str) -> Unstored | None:
    """The file that git, by what it said, cannot store; None when it failed for another reason."""
    said = said[-_LONGEST:]
    if _PLACE.search(said):
        return None
    for pattern in (*_REFUSED, _FILTER):
        if found := pattern.search(said):
            told = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("hint:")]
            lines = [_SAID.sub("", line, count=1) for line in told]
            path = found["path"] or "a file"
            return Unstored(path=path, why=" / ".join(lines), filtered=pattern is _FILTER)
    return None
