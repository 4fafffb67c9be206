"""The part of the user's git configuration that runplan's own repositories take over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Whole sections. Never: remote, branch, url, credential, include, alias, safe, and whatever names a program.
SECTIONS = frozenset((
    "user", "author", "committer", "i18n", "filter", "lfs", "gpg", "apply",
    "diff", "merge", "commit", "tag", "rerere", "submodule",
))  # fmt: skip
CORE = frozenset((
    "autocrlf", "eol", "safecrlf", "symlinks", "ignorecase", "precomposeunicode", "filemode",
    "protecthfs", "protectntfs", "attributesfile", "excludesfile", "checkroundtripencoding",
    "bigfilethreshold", "quotepath", "commentchar", "whitespace", "longpaths", "trustctime", "checkstat", "abbrev",
))  # fmt: skip
#: No maintenance may remove objects, and every ref change is logged. A file that the user's git-lfs has not
#: downloaded stays a pointer.
OWN = (
    ("gc.auto", "0"), ("maintenance.auto", "false"), ("core.logallrefupdates", "true"),
    ("lfs.skipdownloaderrors", "true"),
)  # fmt: skip

Pairs = tuple[tuple[str, str | None], ...]


def read_listing(output: str) -> Pairs:
    """The keys and values of `git config --list -z`; a key without a value has None."""
    entries = (entry.partition("\n") for entry in output.split("\0") if entry)
    return tuple((key, value if mark else None) for key, mark, value in entries)


def allowed(pairs: Iterable[tuple[str, str | None]]) -> Pairs:
    """What a repository of ours may take over."""
    return tuple((key, value) for key, value in pairs if _is_allowed(key))


def _is_allowed(key: str) -> bool:
    section, _, rest = key.partition(".")
    return section in SECTIONS or (section == "core" and rest in CORE)


def is_partial_clone(pairs: Iterable[tuple[str, str | None]]) -> bool:
    """Whether objects of the repository may be missing until a remote is asked for them."""
    return any(key == "extensions.partialclone" or _is_promisor(key, value) for key, value in pairs)


def _is_promisor(key: str, value: str | None) -> bool:
    return key.startswith("remote.") and key.endswith(".promisor") and value in (None, "true", "yes", "on", "1")


def config_text(pairs: Sequence[tuple[str, str | None]]) -> str:
    """A git configuration file that says exactly this."""
    return "".join(f"{_header(key)}\n\t{key.rpartition('.')[2]}{_assigned(value)}\n" for key, value in pairs)


def _header(key: str) -> str:
    section, _, rest = key.partition(".")
    subsection = rest.rpartition(".")[0]
    return f'[{section} "{_escaped(subsection)}"]' if subsection else f"[{section}]"


def _assigned(value: str | None) -> str:
    if value is None:
        return ""
    return ' = "' + _escaped(value).replace("\n", "\\n").replace("\t", "\\t") + '"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
