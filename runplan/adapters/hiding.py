"""Takes back what keeps git from seeing the files of a worktree of ours, before anybody believes its status.

An agent can tell git to take files for unchanged (`update-index --assume-unchanged`, `--skip-worktree`), or spoil the
index. What is not seen is neither committed nor kept aside, so it would be lost. A sparse checkout uses the same mark
for the files it leaves out: those that are not there are no deletions.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.gitenv import configured
from runplan.adapters.indexfile import hidden
from runplan.adapters.plainfiles import read_file
from runplan.adapters.status import COMMAND, read_status, status_of
from runplan.core.errors import GitFailed
from runplan.core.storing import unstored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.adapters.git import Git
    from runplan.adapters.indexfile import Hidden
    from runplan.adapters.registry import Entry
    from runplan.core.gitfacts import Oid, WorktreeState

#: Which files a worktree leaves out is written where its agent can write.
SPARSE = "info/sparse-checkout"
#: Whatever is configured: an index in one piece, with every file in it.
IN_ONE_PIECE = ("core.splitIndex=false", "index.sparse=false")


def honest_status(git: Git, entry: Entry) -> WorktreeState:
    """One status of a worktree of ours, with nothing hidden from it; no further process where nothing is."""
    there = git.within(entry.worktree)
    found = _hidden(entry)
    if found is None and _content(entry) is not None:
        found = _made_readable(there, entry)
    if found is not None:
        _show(there, "--no-assume-unchanged", found.assumed)
        _show(there, "--no-skip-worktree", _not_left_out(entry, found.skipped))
    try:
        return status_of(there)
    except GitFailed as error:
        if unstored(str(error)) is None:
            raise
        return _untranslated_status(there, entry)


def _untranslated_status(there: Git, entry: Entry) -> WorktreeState:
    """The status by the bytes of the files, where git cannot translate them to what it would store."""
    head = there.text("rev-parse", "HEAD")
    with untranslated(entry.directory.parent.parent, entry.worktree, like=head, head=head) as env:
        ran = there.run(*COMMAND, "--ignored=matching", env={**env, "GIT_INDEX_FILE": str(entry.directory / "index")})
    return replace(read_status(ran.out, entry.worktree), branch=entry.attached)


@contextmanager
def untranslated(
    common_dir: Path, worktree: Path, *, like: Oid, head: str = "ref: refs/heads/none"
) -> Iterator[dict[str, str]]:
    """The environment in which git takes files byte for byte: attributes of its directory rank above all others."""
    from tempfile import TemporaryDirectory  # dear, and hardly ever needed

    config = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n"
    with TemporaryDirectory(prefix="runplan-", dir=common_dir) as place:
        for name, content in {
            "HEAD": f"{head}\n".encode(),
            "refs/none": b"",
            "config": config.encode() if len(like) == 64 else b"",
            "info/attributes": b"* -text -eol -ident -filter !working-tree-encoding\n",
            "info/exclude": read_file(common_dir / "info/exclude") or b"",
        }.items():
            path = Path(place, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        where = {"GIT_DIR": place, "GIT_WORK_TREE": str(worktree)}
        yield {**where, "GIT_OBJECT_DIRECTORY": str(common_dir / "objects")}


def _content(entry: Entry) -> bytes | None:
    return read_file(entry.directory / "index")


def _hidden(entry: Entry) -> Hidden | None:
    content = _content(entry)
    return None if content is None else hidden(content)


def _made_readable(there: Git, entry: Entry) -> Hidden | None:
    """Have the index put together, where it is in pieces; else made anew of what the branch holds."""
    env = configured(*IN_ONE_PIECE)
    there.run("update-index", "--no-split-index", env=env, ok=(0, 1, 128))
    found = _hidden(entry)
    if found is None:
        (entry.directory / "index").unlink(missing_ok=True)
        there.run("read-tree", "-m", "HEAD", env=env, ok=(0, 128))  # of nothing, on a branch without commits
        found = _hidden(entry)
    return found


def _not_left_out(entry: Entry, skipped: Sequence[str]) -> Sequence[str]:
    if not skipped or not os.path.lexists(entry.directory / SPARSE):
        return skipped
    return tuple(_there(entry.worktree, skipped))


def _there(worktree: Path, paths: Sequence[str]) -> Iterator[str]:
    """Those that exist; a directory that does not is looked for once, for a sparse checkout leaves out whole ones."""
    absent: set[str] = set()
    for path in paths:
        parent = os.path.dirname(path)  # noqa: PTH120 - of a hundred thousand paths
        if parent in absent:
            continue
        if os.path.lexists(os.path.join(worktree, path)):
            yield path
        elif not os.path.isdir(os.path.join(worktree, parent)):  # noqa: PTH112
            absent.add(parent)


def _show(there: Git, flag: str, paths: Sequence[str]) -> None:
    if paths:
        names = b"\0".join(os.fsencode(path) for path in paths)
        there.run("update-index", flag, "-z", "--stdin", stdin=names, env=configured(*IN_ONE_PIECE))
