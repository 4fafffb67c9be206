"""Reads command lines an agent ran for what they would change in a repository."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLACED = "refs/replace/"
LONGEST = 10_000  #: characters of a command whose quotes are looked at
#: Options of git itself that take the next word.
_TAKES_A_WORD = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"))
_MOVES_REFS = frozenset(
    ("branch", "checkout", "fetch", "notes", "pull", "push", "replace", "switch", "symbolic-ref", "tag", "update-ref")
)
_MOVES_HEAD = frozenset(("am", "cherry-pick", "commit", "merge", "pull", "rebase", "reset", "revert"))
#: Options by which a command makes or moves the branch that follows.
_SETS_NEXT = frozenset(("-b", "-B", "-c", "-C", "--create", "--force-create", "--orphan"))
_TAKES_REFSPECS = frozenset(("fetch", "pull", "push"))
_OTHER_CONFIG = ("--global", "--system", "--file", "-f", "--blob", "--worktree")
_USER_CONFIG = ("--global", "--system")
_READS_CONFIG = ("--get", "-l", "--list", "get", "list", "--show")
_CHANGES_CONFIG = ("--unset", "--add", "--replace-all", "--remove-section", "--rename-section", "-e", "--edit")
_FOLLOWS = ("-u", "--set-upstream", "--unset-upstream", "--edit-description", "-t", "--track")
_LISTS = ("-l", "--list", "--show-current", "--contains", "--merged", "--no-merged", "--points-at")
_MAKE_BRANCHES = frozenset(("checkout", "switch", "worktree"))
#: Commands that leave every ref where it is; of one that is not known here that cannot be said.
_KEEPS_REFS = re.compile(
    "add|blame|cat-file|check-(?:attr|ignore)|config|count-objects|describe|diff(?:-files|-index|-tree)?|for-each-ref"
    "|grep|hash-object|help|log|ls-(?:files|remote|tree)|merge-base|name-rev|rev-list|rev-parse|shortlog|show(?:-ref)?"
    "|status|update-index|var|version"
)
_LOSES_STASHES = frozenset(("drop", "pop", "clear"))
_WRITES_CHECKOUT = frozenset(
    [
        "add",
        "am",
        "apply",
        "checkout",
        "cherry-pick",
        "clean",
        "commit",
        "merge",
        "mv",
        "pull",
        "read-tree",
        "rebase",
        "reset",
        "restore",
        "revert",
        "rm",
        "stash",
        "switch",
        "update-index",
    ]
)
_ONLY_LOOKS = ("-n", "--dry-run", "--check", "--stat", "list", "show")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommand:
    """One call of git."""

    verb: str
    words: tuple[str, ...]  #: after the verb

    @property
    def writes_config(self) -> bool:
        """Whether it could have written the repository's configuration."""
        if self.verb == "config":
            return self._sets()
        if self.verb in ("remote", "submodule", "submodule--helper", "sparse-checkout", "lfs"):
            return bool(self.words) and self.words[0] not in ("-v", "show", "get-url", "status", "list")
        return self.verb in ("branch", "push", "checkout", "switch") and self._has(_FOLLOWS)

    @property
    def writes_user_config(self) -> bool:
        """Whether it could have written the user's or the machine's configuration."""
        if self.verb == "lfs":
            return self.words[:1] in (("install",), ("uninstall",))
        return self.verb == "config" and self._has(_USER_CONFIG) and not self._has(_READS_CONFIG) and self._says()

    def writes_file(self, path: str) -> bool:
        """Whether it could have written a configuration file that it names."""
        named = path in self.words or f"--file={path}" in self.words
        return self.verb == "config" and named and not self._has(_READS_CONFIG) and self._says()

    @property
    def writes_checkout(self) -> bool:
        """Whether it could have changed the files or the index of the checkout it ran in."""
        return self.verb in _WRITES_CHECKOUT and bool(self.words or self.verb == "stash") and not self._has(_ONLY_LOOKS)

    @property
    def loses_stashes(self) -> bool:
        return self.verb == "stash" and not _LOSES_STASHES.isdisjoint(self.words[:1])

    def moves(self, ref: str) -> bool:
        """Whether it could have moved or deleted the ref, which it must name."""
        if self.verb == "replace" and ref.startswith(REPLACED):
            return bool(self.words) and not self._has(("-l", "--list"))  # by object, not by ref
        named = (word.lstrip("+:").rpartition(":")[2] for word in self.words)
        return self.verb in _MOVES_REFS and any(word in _names_of(ref) for word in named)

    def sets(self, ref: str) -> bool:
        """Whether it says that this ref, and not only something that it is made from, should be moved or deleted."""
        if self.verb == "update-ref":
            return self._names(("-m",))[:1] == [ref]
        names = _names_of(ref)
        if self.verb == "branch":
            named = self._names(("-u", "--sort", "--format"))
            return not self._has(_LISTS) and any(word in names for word in (named if self._renames() else named[:1]))
        if self.verb in _TAKES_REFSPECS:
            # A push to a remote by its name moves nothing here.
            there = self._names()[:1]
            here = self.verb != "push" or any(word == "." or "/" in word for word in there)
            return here and any(word.rpartition(":")[2] in names for word in self.words if ":" in word)
        if self.verb == "rebase":
            return self._names(("--onto", "-s", "-X", "-x"))[1:2] in ([name] for name in names)
        return any(word in names for word in self._set_next()) if self.verb in _MAKE_BRANCHES else False

    @property
    def moves_any(self) -> bool:
        """Whether it moves refs that it is told elsewhere."""
        return self.verb == "fast-import" or (self.verb == "update-ref" and "--stdin" in self.words)

    @property
    def moves_head(self) -> bool:
        """Whether it could have moved the branch that is checked out where it ran."""
        return self.verb in _MOVES_HEAD or (self.verb == "update-ref" and self._names(("-m",))[:1] == ["HEAD"])

    @property
    def keeps_refs(self) -> bool:
        """Whether it cannot have moved any ref."""
        return _KEEPS_REFS.fullmatch(self.verb) is not None

    @property
    def pushes(self) -> bool:
        return self.verb == "push"

    def _renames(self) -> bool:
        """Whether every branch it names is moved or deleted, not the first alone."""
        letters = {letter for word in self.words if re.fullmatch("-[a-zA-Z]+", word) for letter in word}
        return not letters.isdisjoint("dDmMcC") or self._has(("--delete", "--move", "--copy"))

    def _set_next(self) -> Iterator[str]:
        for word, following in zip(self.words, (*self.words[1:], ""), strict=True):
            option, given, value = word.partition("=")
            if option in _SETS_NEXT:
                yield value if given else following

    def _names(self, take: tuple[str, ...] = ()) -> list[str]:
        """The words that are no options; those in `take` have one that is."""
        before = ("", *self.words)
        return [
            word
            for option, word in zip(before, self.words, strict=False)
            if not word.startswith("-") and option not in take
        ]

    def _sets(self) -> bool:
        if self._has(_OTHER_CONFIG) or self._has(_READS_CONFIG):
            return False
        return self._says()

    def _says(self) -> bool:
        return self._has(_CHANGES_CONFIG) or sum(not word.startswith("-") for word in self.words) > 1

    def _has(self, options: tuple[str, ...]) -> bool:
        return any(
            word == one or (one.startswith("--") and word.startswith(one)) for word in self.words for one in options
        )


def _names_of(ref: str) -> tuple[str, ...]:
    """How a ref may be called in a command."""
    return ref, ref.removeprefix("refs/"), re.sub(r"^refs/(heads|tags|remotes)/", "", ref)


def git_commands(line: str) -> Iterator[GitCommand]:
    """Every call of git in a shell line, as far as it can be read without running it."""
    for part in re.split(r"[;&|\n()]+", line):
        words = _split(part)
        at = next((at for at, word in enumerate(words) if word == "git" or word.endswith("/git")), None)
        if at is not None and (command := _command(words[at + 1 :])):
            yield command


def _split(part: str) -> list[str]:
    if len(part) > LONGEST:  # shlex takes time by the square of a word's length
        return part.split()
    try:
        return shlex.split(part)
    except ValueError:  # a quote that the split above has torn apart
        return part.split()


def _command(words: list[str]) -> GitCommand | None:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _TAKES_A_WORD else 1
    return GitCommand(verb=words[at], words=tuple(words[at + 1 :])) if at < len(words) else None
