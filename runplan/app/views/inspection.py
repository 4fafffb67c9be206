"""Answers people's questions about their repository with GitPython: its setup, its commits and its diffs.

Only the commands that need GitPython import it. It works on the user's repository, never on an agent's.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.environment import FETCHING
from runplan.adapters.configuration.load import list_agent_kinds
from runplan.adapters.git.command import SETTINGS, borrowing, configured
from runplan.adapters.store.files import read_text
from runplan.domain.errors import GitFailed
from runplan.domain.gitfacts import Identity, Oid
from runplan.domain.settings import toolchain
from runplan.domain.text import visible
from runplan.engine.loop.context import RepositoryContext

if TYPE_CHECKING:
    from git import Git


#: No program that the configuration names checks a signature or formats a diff.
_PLAIN_LOG = ("--no-walk=unsorted", "--no-show-signature")
_PLAIN_DIFF = (
    *("--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none", "--patch"),
    *("--src-prefix=a/", "--dst-prefix=b/"),  # whatever diff.noprefix says
)
_TEXT = 0.9  #: part of a file's bytes that are characters, from which on it is a text


class RepositoryFacts(Struct, frozen=True, kw_only=True):
    root: str  #: the main checkout
    git_version: str
    default_branch: str  #: that of the remote, else main, master or the current one; "" for none
    identity: Identity | None  #: the configured one
    remotes: tuple[str, ...]
    installed: tuple[str, ...]  #: the known agents whose program is on PATH, in the order they are suggested
    toolchain: toolchain.Toolchain
    container: Mapping[str, str] = {}  #: image or build of .devcontainer/devcontainer.json, by the setting
    interfaces: tuple[str, ...] = ()  #: patterns of the files that a browser shows
    variables: tuple[str, ...] = ()  #: names of those that package managers and compilers read here


def known_agents() -> tuple[str, ...]:
    """The agents whose programs can be looked for, in the order they are suggested."""
    known = {kind: agent_of(kind) for kind in list_agent_kinds() if agent_of(kind).program}
    return tuple(sorted(known, key=lambda kind: (known[kind].rank, kind)))


def inspect_repository(context: RepositoryContext) -> RepositoryFacts:
    root = context.root
    places = (":(top,glob)*", *(f":(top){folder}" for folder in toolchain.FOLDERS))
    with _open_with_gitpython(context) as git:
        listed = git.ls_files("-z", "--full-name", "--cached", "--others", "--exclude-standard", "--", *places)
        files = [name for name in listed.split("\0") if (root / name).is_file()]
        texts = {name: (root / name).read_text("utf-8", errors="replace") for name in toolchain.manifests(files)}
        path = context.env.get("PATH", "")
        branches = git.for_each_ref("--format=%(refname:lstrip=2)", "refs/heads").split()
        remote = git.symbolic_ref("-q", "refs/remotes/origin/HEAD", with_exceptions=False)
        current = str(git.symbolic_ref("-q", "--short", "HEAD", with_exceptions=False))
        usual = (remote.removeprefix("refs/remotes/origin/"), "main", "master", current)
        # git's guess from the host name does not count, nor do variables, which runs drop.
        name, email = (
            git.config("--get", f"committer.{key}", with_exceptions=False)
            or git.config("--get", f"user.{key}", with_exceptions=False)
            for key in ("name", "email")
        )
        return RepositoryFacts(
            root=str(root),
            git_version=git.version(),
            default_branch=next((name for name in usual if name in branches), branches[0]) if branches else current,
            identity=Identity(name=name, email=email) if name and email else None,
            remotes=tuple(git.remote().splitlines()),
            installed=tuple(kind for kind in known_agents() if shutil.which(agent_of(kind).program, path=path)),
            toolchain=toolchain.detect(files, texts),
            container=toolchain.read_devcontainer(read_text(root / toolchain.DEVCONTAINER) or ""),
            interfaces=toolchain.find_interfaces(git.ls_files("-z", "--", *toolchain.INTERFACES).split("\0")),
            variables=tuple(sorted(FETCHING & context.env.keys())),
        )


def describe_commits(context: RepositoryContext, oids: Iterable[Oid]) -> dict[Oid, str]:
    """The date and the subject of each commit; one git process. A commit that keeps files has no date of its own."""
    with _open_with_gitpython(context) as git:
        lines = git.log(*_PLAIN_LOG, "--format=%H %cs %s", *oids, "--").splitlines()
    return {oid: words.removeprefix("1970-01-01 ") for oid, _, words in (line.partition(" ") for line in lines)}


def read_short_diffs(context: RepositoryContext, shorts: Iterable[str]) -> dict[str, str]:
    """The diffs of the commits that exist to their parents, by abbreviated ids; every character is visible."""
    known = {short: oid for short in shorts if (oid := context.git.tip(short)) is not None}
    if not known:
        return {}
    flags = (*_PLAIN_LOG, "--format=commit %H", "--text", *_PLAIN_DIFF)
    with _open_with_gitpython(context) as git:
        output: bytes = git.log(*flags, *known.values(), "--", stdout_as_string=False)
    # A line of a diff begins with a space, a sign or a word of git's, never with "commit".
    _, *records = re.split(rb"^commit ([0-9a-f]+)$", output, flags=re.MULTILINE)
    pairs = zip(records[::2], records[1::2], strict=True)
    diffs = {oid.decode(): visible(_decode_diff(diff)).strip("\n") for oid, diff in pairs}
    return {short: diffs[oid] for short, oid in known.items() if oid in diffs}


def compare_commits(context: RepositoryContext, old: Oid, new: Oid) -> tuple[str, str]:
    """The messages of the commits between two, oldest first, and the diff. `new` may not be in the repository yet."""
    flags = ("--no-show-signature", "--encoding=UTF-8", "--reverse", "--format=%B")
    with _open_with_gitpython(context) as git:
        messages: bytes = git.log(*flags, f"{old}..{new}", "--", stdout_as_string=False)
        diff: bytes = git.diff(
            "--stat", "--text", *_PLAIN_DIFF, old, new, "--", stdout_as_string=False, strip_newline_in_stdout=False
        )
    return messages.decode("utf-8", "backslashreplace").strip(), _decode_diff(diff)


def _decode_diff(output: bytes) -> str:
    """The diffs, without the content of files that are no text. A few odd bytes or an attribute hide no text."""
    shown = []
    for diff in re.split(rb"^(?=diff --git )", output, flags=re.MULTILINE):
        head, _, content = diff.partition(b"\n@@ ")
        characters = content.decode("utf-8", "ignore").encode()
        is_text = characters == content or len(characters.replace(b"\0", b"")) >= _TEXT * len(content)
        shown.append(diff if is_text or b"\0" not in content else head + b"\nBinary files differ\n")
    return b"".join(shown).decode("utf-8", "backslashreplace")


@contextmanager
def _open_with_gitpython(context: RepositoryContext) -> Iterator[Git]:
    """The git commands of GitPython in the user's repository, which also see the objects of candidates."""
    import git  # slow to import, and not needed by the other commands

    class OwnGit(git.Git):
        GIT_PYTHON_GIT_EXECUTABLE = context.git.program  # for this call: the class of GitPython belongs to the process

    class OwnRepo(git.Repo):
        GitCommandWrapperType = OwnGit

    env = {name: value for name, value in context.git.variables.items() if name.startswith("GIT_")}
    tool = context.state / "tool.git" / "objects"
    # GitPython would expand variables in a path.
    with OwnRepo(context.git.cwd, expand_vars=False) as repo:
        env["GIT_WORK_TREE"] = str(repo.working_dir)  # GitPython cannot remove the caller's
        repo.git.update_environment(**env, **configured(*SETTINGS), **(borrowing(tool) if tool.is_dir() else {}))
        try:
            yield repo.git
        except git.GitCommandError as error:
            message = str(error.stderr).strip().removeprefix("stderr: ").strip("'\n ")
            raise GitFailed(f"{context.root}: git {error.command[1]} failed: {message}") from error
