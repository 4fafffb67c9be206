"""The user's configuration of git: how it is read, and which part of it runplan's own repositories copy."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

#: Sections of the user's configuration that are copied. Never: remote, branch, url, credential, include, alias,
#: safe, and any key that names a program.
SECTIONS = frozenset((
    "user", "author", "committer", "i18n", "filter", "lfs", "gpg", "apply",
    "diff", "merge", "commit", "tag", "rerere", "submodule",
))  # fmt: skip
CORE = frozenset((
    "autocrlf", "eol", "safecrlf", "symlinks", "ignorecase", "precomposeunicode", "filemode",
    "protecthfs", "protectntfs", "attributesfile", "excludesfile", "checkroundtripencoding",
    "bigfilethreshold", "quotepath", "commentchar", "whitespace", "longpaths", "trustctime", "checkstat", "abbrev",
))  # fmt: skip
#: Without the user's keys an agent's commits, and those of tests, could not be signed; runplan signs what lands.
_SIGNING = ("commit.gpgsign", "tag.gpgsign", "tag.forcesignannotated")
#: Sections that a sandbox shows of the files in the user's repository. Others may hold a token.
_SHOWN = SECTIONS | {"core", "extensions", "remote", "branch"}
_USER_IN_URL = re.compile(r"(?i)\b((?:https?|ftps?)://)[^/\s\"]*@")
Pairs = tuple[tuple[str, str | None], ...]


def read_listing(output: str) -> Pairs:
    """The keys and values of `git config --list -z`; a key without a value has None."""
    entries = (entry.partition("\n") for entry in output.split("\0") if entry)
    return tuple((key, value if mark else None) for key, mark, value in entries)


def resolve_includes(
    output: str, *, cwd: Path, home: Path, is_changeable: Callable[[Path], bool]
) -> tuple[dict[str, list[tuple[str, str | None]]], dict[Path, list[str]]]:
    """The pairs of each scope in a listing with scopes and origins, and the keys of changeable files, left out."""
    pairs, left = dict[str, list[tuple[str, str | None]]](), dict[Path, list[str]]()
    fields = output.split("\0")[:-1]
    for scope, origin, text in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        file = cwd / origin.removeprefix("file:")
        key, value = read_listing(text)[0]
        if value and re.fullmatch(r"include(if\..*)?\.path", key, re.DOTALL):
            included = (file.parent / (home / value[2:] if value.startswith("~/") else value)).resolve()
            if file.resolve() in left or is_changeable(included):
                left.setdefault(included, [])
        elif file.resolve() in left:
            left[file.resolve()].append(key)
        else:
            pairs.setdefault(scope, []).append((key, value))
    return pairs, left


def filter_allowed(pairs: Iterable[tuple[str, str | None]]) -> Pairs:
    """The pairs that a repository of ours copies, without users and passwords in URLs."""
    split = ((key.partition("."), key, value) for key, value in pairs)
    return tuple(
        (_USER_IN_URL.sub(r"\1", key), value and _USER_IN_URL.sub(r"\1", value))
        for (section, _, rest), key, value in split
        if (section in SECTIONS and key not in _SIGNING) or (section == "core" and rest in CORE)
    )


def hide_secrets(text: str) -> str:
    """A file of configuration without users and passwords in URLs, and without sections that may hold a token."""
    sections = re.split(r"^(?=[ \t]*\[)", text, flags=re.MULTILINE)
    named = ((section, re.match(r"[ \t]*\[([\w-]+)", section)) for section in sections)
    return _USER_IN_URL.sub(r"\1", "".join(section for section, name in named if name and name[1].lower() in _SHOWN))


def list_includes(text: str, file: Path, home: Path) -> list[Path]:
    """The files that a file of configuration includes, whether or not the condition holds."""
    sections = re.findall(r"(?ims)^[ \t]*\[include(?:if\b[^\n]*)?\](.*?)(?=^[ \t]*\[|\Z)", text)
    paths = (path.strip('"') for body in sections for path in re.findall(r"(?im)^[ \t]*path[ \t]*=[ \t]*(.*\S)", body))
    return [file.parent / (home / path[2:] if path.startswith("~/") else path) for path in paths]


def is_partial_clone(pairs: Iterable[tuple[str, str | None]]) -> bool:
    """Whether objects may be missing until a remote is asked for them."""
    return any(
        key == "extensions.partialclone"
        or (key.startswith("remote.") and key.endswith(".promisor") and value in (None, "true", "yes", "on", "1"))
        for key, value in pairs
    )


def config_text(pairs: Iterable[tuple[str, str | None]]) -> str:
    lines = []
    for key, value in pairs:
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        lines.append(f'[{section} "{_escape_value(subsection)}"]' if subsection else f"[{section}]")
        quoted = "" if value is None else _escape_value(value).replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f"\t{name}" if value is None else f'\t{name} = "{quoted}"')
    return "".join(f"{line}\n" for line in lines)


def _escape_value(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
