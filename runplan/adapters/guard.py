"""Watches the main repository while an agent runs, and puts back what the agent changed there."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.adapters import brokenfiles, oddfindings
from runplan.adapters.anchored import make_below
from runplan.adapters.gittrace import traced_commands
from runplan.adapters.ownrefs import read_refs
from runplan.adapters.plainplaces import TICK_NS, PlainPlaces
from runplan.adapters.records import Records, text_of
from runplan.adapters.registry import SHOWN, directories_of, entries as worktree_entries
from runplan.adapters.restoring import PARKED_FILES, Restorer, head_text
from runplan.adapters.status import status_of
from runplan.adapters.userconfig import TOO_LARGE, user_files
from runplan.core.findings import compare
from runplan.core.gitfacts import Finding, Identity
from runplan.core.gitwords import git_commands
from runplan.core.guard import (
    STASH,
    SYMBOLIC,
    Evidence,
    FileStamp,
    Logged,
    Stamp,
    Watched,
    made_there,
    unspelled,
    written_files,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from runplan.adapters.git import Git
    from runplan.core.dispatch import ToolUsed
    from runplan.core.gitfacts import Oid

#: Files below the common directory that decide what git does; hooks come on top.
FILES = (
    "config",
    "config.worktree",
    "info/attributes",
    "info/exclude",
    "info/grafts",
    "objects/info/alternates",
    "shallow",
)
LARGEST = 1024 * 1024  #: bytes of a hook that are kept to be put back
UNKEPT = "\0"  #: stands for what is larger, or is no file


class Guard:
    """The main repository: its refs, HEAD, stashes, configuration, hooks and checkout."""

    def __init__(self, git: Git, *, root: Path, common_dir: Path, prefix: str = "runplan/") -> None:
        self._git = git
        self._root = root
        self._common_dir = common_dir
        self._prefix = f"refs/heads/{prefix}" if prefix else ""
        self._places = PlainPlaces(common_dir, prefix=self._prefix)
        self._records = Records(git, common_dir)

    def odd(self, worktree: Path, *, branch: str, before: Mapping[str, object]) -> tuple[Finding, ...]:
        """What stands in git's places without being a plain file; looked for before anything is opened there.

        `before` is the stamp, empty where none was taken: then what had been there cannot be put back.
        """
        return oddfindings.findings(self._places, worktree, branch, before)

    def broken(self, before: Mapping[str, object]) -> tuple[Finding, ...]:
        """What git cannot read any more of its own files; nothing where no stamp was taken."""
        return tuple(brokenfiles.findings(self._common_dir, before)) if before else ()

    def stamp(self) -> dict[str, object]:
        """What the main repository looks like now, fit for JSON; runs no process."""
        ours = self._ours()
        seen = self._seen(ours)
        return {
            "at": time.time_ns(),
            "ours": ours,
            "refs": dict(seen.refs),
            "symbolic": dict(seen.symbolic),
            "head": seen.head,
            "head_log": self._records.size("HEAD"),
            "heads": dict(seen.heads),
            "head_logs": {name: self._records.size(name) for name in seen.heads},
            "own_logs": {name: self._records.size(f"worktrees/{name}/HEAD") for name in ours},
            "stashes": list(seen.stashes),
            "files": {path: [kept.mode, kept.text] for path, kept in seen.files.items()},
            **brokenfiles.stamped(self._common_dir),
        }

    def recalled(self, agent: Identity) -> dict[str, object]:
        """What the main repository looked like before, as far as reflogs tell, where the stamp itself is lost."""
        seen = self._seen(())
        refs = dict(seen.refs)
        made: set[Oid] = set()
        for ref in seen.refs:
            by_agent = [entry for entry in self._records.log(ref) if entry.who == agent]
            if by_agent and ref == STASH:
                made = {entry.new for entry in by_agent}
            elif by_agent and by_agent[0].old.strip("0"):
                refs[ref] = by_agent[0].old
            elif by_agent:
                del refs[ref]
        stashes = [oid for oid in seen.stashes if oid not in made]
        return self.stamp() | {"refs": refs, "stashes": stashes}

    def compare(
        self,
        before: Mapping[str, object],
        *,
        own: Collection[str],
        tools: Sequence[ToolUsed],
        whose: Watched = Watched(),  # noqa: B008 - it never changes
    ) -> tuple[Finding, ...]:
        """What changed since `before` and is not plainly the user's. Only the refs in `own` may have moved."""
        old = _stamp(before)
        places = [self._root, *(entry.worktree for entry in worktree_entries(self._common_dir))]
        ran = traced_commands(whose.trace, places, self._common_dir) if whose.trace is not None else {}
        here = ran.get(os.path.realpath(self._root), ())
        traced = tuple(one for place in ran.values() for one in place)
        tools = (*tools, *traced)
        now = self._seen(_names(before.get("ours", [])))
        head_logs = _mapping(before.get("head_logs", {}))
        own_entries = self._own_entries(whose.worktree, _mapping(before.get("own_logs", {})))
        evidence = Evidence(
            entries=self._records.entries,
            tagger=self._records.tagger,
            committer=self._records.committer,
            head_entries=self._records.log("HEAD", _number(before["head_log"])),
            other_heads={name: self._records.log(name, _number(head_logs.get(name, 0))) for name in old.heads},
            tools=tools,
            agent=whose.agent,
            beside=whose.beside,
            prefix=self._prefix,
            heads=[stamp.refs[whose.branch] for stamp in (old, now) if whose.branch in stamp.refs],
            made=made_there(own_entries),
            own_entries=own_entries,
            in_checkout=here,
            checked_out=now.head.removeprefix(SYMBOLIC),
            traced=traced if whose.trace is not None else None,
        )
        found = compare(old, now, evidence, own=own)
        return found + tuple(self._written(tools, _number(before["at"]))) + tuple(_commanded(here))

    def restore(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Put back what the agent changed and nobody built upon, keep every value that would be lost."""
        restorer = Restorer(self._git, self._common_dir)
        return tuple(self._restored(finding, restorer) for finding in findings)

    def _restored(self, finding: Finding, restorer: Restorer) -> Finding:
        if finding.kind == oddfindings.PLACE:
            return oddfindings.undo(self._places, self._common_dir, finding)
        if finding.kind == brokenfiles.BROKEN:
            return brokenfiles.undo(self._common_dir, finding)
        return self._put_away(finding) if _unkept(finding) else restorer.restore(finding)

    def checkout(self, *, since: Path) -> tuple[str, ...]:
        """The paths of the main checkout that differ from its HEAD and are younger than the file `since`."""
        if not self._root.is_dir():
            return ()
        state = status_of(self._git.at(self._root))
        paths = (*state.changed, *(one.path for one in state.untracked))
        moment = since.stat().st_mtime_ns
        return tuple(sorted(path for path in paths if _changed_at(self._root / path) >= moment))

    def _put_away(self, finding: Finding) -> Finding:
        """Move what git would obey, or stumble over, to where it does not look; none was there that we had not made."""
        aside = self._common_dir / PARKED_FILES / f"{finding.name.replace('/', '-')}.{time.time_ns()}"
        make_below(self._common_dir, aside.parent)
        (self._common_dir / finding.name).rename(aside)
        return replace(finding, restored=True, parked=str(aside))

    # --- looking -------------------------------------------------------------------------------------

    def _ours(self) -> list[str]:
        """The worktrees that are a run's, by their names in git's list; an agent can make one look like another's."""
        return [
            entry.directory.name
            for entry in worktree_entries(self._common_dir)
            if (self._prefix and entry.head.startswith(self._prefix)) or (entry.directory / SHOWN).exists()
        ]

    def _seen(self, ours: Sequence[str]) -> Stamp:
        found = read_refs(self._common_dir, self._git)
        refs = found.resolved
        return Stamp(
            refs=refs,
            symbolic=found.symbolic,
            head=head_text(self._common_dir / "HEAD"),
            stashes=tuple(entry.new for entry in self._records.log(STASH)) if STASH in refs else (),
            files=dict(self._files()) | dict(self._own_config(ours)) | user_files(self._git.env, self._common_dir),
            heads=dict(self._heads(ours)),
        )

    def _heads(self, ours: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Where the user's other worktrees stand, by the names git has for these HEADs."""
        for entry in worktree_entries(self._common_dir):
            said = head_text(entry.directory / "HEAD") if entry.directory.name not in ours else ""
            if said.strip("0"):  # else it is being made, perhaps by another run
                yield f"worktrees/{entry.directory.name}/HEAD", said

    def _files(self) -> Iterator[tuple[str, FileStamp]]:
        try:
            hooks = sorted(os.listdir(self._common_dir / "hooks"))  # noqa: PTH208 - four times a phase
        except (FileNotFoundError, NotADirectoryError):
            hooks = []
        for name in (*FILES, *(f"hooks/{name}" for name in hooks if not name.endswith(".sample"))):
            path = os.path.join(self._common_dir, name)
            try:
                found = os.stat(path)  # noqa: PTH116
            except OSError:
                continue
            small = found.st_size <= LARGEST
            if stat.S_ISREG(found.st_mode) and (small or name in FILES):
                yield name, FileStamp(text=text_of(path) if small else TOO_LARGE, mode=stat.S_IMODE(found.st_mode))

    def _own_config(self, ours: Sequence[str]) -> Iterator[tuple[str, FileStamp]]:
        """What git obeys in worktrees of ours besides; whatever is there but no file of some size is seen as well."""
        for name in (f"worktrees/{worktree}/config.worktree" for worktree in ours):
            path = self._common_dir / name
            if os.path.lexists(path):
                plain = path.is_file() and path.stat().st_size <= LARGEST
                mode = stat.S_IMODE((path.stat() if plain else path.lstat()).st_mode)
                yield name, FileStamp(text=text_of(path) if plain else UNKEPT, mode=mode)

    def _own_entries(self, worktree: Path | None, sizes: Mapping[str, Any]) -> list[Logged]:
        """What the HEAD of the attempt's own worktree has done since; nobody else works there."""
        found = directories_of(self._common_dir, worktree) if worktree is not None else []
        names = (entry.name for entry in found)
        return [one for name in names for one in self._records.log(f"worktrees/{name}/HEAD", sizes.get(name, 0))]

    def _written(self, tools: Sequence[ToolUsed], moment: int) -> Iterator[Finding]:
        """Files of the checkout that the agent says it wrote, and that did change."""
        elsewhere = [self._common_dir, *(entry.worktree for entry in worktree_entries(self._common_dir))]
        for name in written_files(tools):
            path = Path(name)
            if not path.is_relative_to(self._root) or any(path.is_relative_to(place) for place in elsewhere):
                continue
            if _changed_at(path) >= moment - TICK_NS:
                yield Finding(kind="file", name=str(path.relative_to(self._root)), old="", new="", by_agent=True)


def _unkept(finding: Finding) -> bool:
    kept = unspelled(finding.new) if finding.kind == "config" else None
    return kept is not None and kept.text == UNKEPT


def _commanded(ran: Sequence[ToolUsed]) -> Iterator[Finding]:
    """What the agent had git do in the user's checkout: it cannot be undone, so it is named."""
    for tool in ran:
        if any(command.writes_checkout for command in git_commands(tool.path)):
            yield Finding(kind="checkout", name=f"by `{tool.path}`", old="", new="", by_agent=True, safe=False)


def _changed_at(path: Path) -> int:
    """When a path last changed, in nanoseconds; for one that is gone, when its directory did."""
    while True:
        try:
            found = path.lstat()
        except OSError:
            if path == path.parent:
                return 0
            path = path.parent
        else:
            return max(found.st_mtime_ns, found.st_ctime_ns)


def _stamp(stored: Mapping[str, object]) -> Stamp:
    refs, files, stashes = stored["refs"], stored["files"], stored["stashes"]
    symbolic = stored.get("symbolic", {})
    assert isinstance(symbolic, dict)
    assert isinstance(refs, dict)
    assert isinstance(files, dict)
    assert isinstance(stashes, list)
    return Stamp(
        refs=refs,
        symbolic=symbolic,
        head=str(stored["head"]),
        stashes=tuple(stashes),
        files={path: FileStamp(mode=mode, text=text) for path, (mode, text) in files.items()},
        heads=_mapping(stored.get("heads", {})),
    )


def _mapping(value: object) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value


def _names(value: object) -> list[str]:
    assert isinstance(value, list)
    return value


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
