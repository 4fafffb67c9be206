"""runplan's own repositories for one project: `tool.git` for its own git work, and one repository per lane.

Both borrow the user's objects (`objects/info/alternates`) and have neither remotes nor credentials. No agent gets
`tool.git`, so git never obeys an agent there. Facts and measurements: docs/adr/0005-workspace.md.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from runplan.errors import GitFailed, ObjectsRefused, RefusedEarly
from runplan.git import config
from runplan.git.command import Git, borrowing, in_a_line, remedy_for
from runplan.git.discovery import refs_snapshot
from runplan.store.files import make_below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.gitfacts import Oid

TRANSFER_S = 600.0
MOST_PACKS = 25  #: each one makes every git command start a little later
KEEP = "runplan"  #: how `.keep` files of ours begin
#: The values of the user's files were taken over already; an agent can write those files.
_OWN_CONFIG = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
_COPIED = ("shallow", "info/exclude", "info/attributes", "info/grafts")


class Workspace:
    """`tool.git` of one project and what its lanes are made from."""

    def __init__(self, user: Git, *, common_dir: Path, state: Path, root: Path) -> None:
        self.user = user
        self.common_dir = common_dir
        self.lanes = state / "lanes"
        self.root = (user.cwd / root.expanduser()).resolve()  #: where worktrees are made
        self.path = state / "tool.git"
        self._lock = state / "locks" / "workspace.lock"
        self.env = {**user.env, **_OWN_CONFIG}
        self.git = Git(state, env=self.env, options=(f"--git-dir={self.path}",))
        self._config: config.Pairs = ()

    def prepare(self) -> None:
        """Make `tool.git`, or bring its configuration up to date; refuses a repository that cannot be borrowed from."""
        pairs = config.read_listing(os.fsdecode(self.user.run("config", "--list", "-z").out))
        if config.is_partial_clone(pairs):
            raise RefusedEarly(
                "this repository is a partial clone, so objects that a phase needs may be missing; "
                "fetch them first: git fetch --refetch --no-filter, then git config --unset remote.origin.promisor"
            )
        self._config = config.allowed(pairs)
        self._lfs = dict(pairs).get("lfs.storage")
        self._sha256 = dict(pairs).get("extensions.objectformat") == "sha256"
        if not (self.path / "HEAD").is_file():
            make_below(self.common_dir, self._lock.parent)
            with FileLock(self._lock, thread_local=False, fallback_to_soft=False, preserve_lock_file=True):
                if not (self.path / "HEAD").is_file():  # another process may have made it meanwhile
                    self._init(self.path)
        self.refresh(self.path)
        self.merge_packs()

    def merge_packs(self) -> None:
        """Merge many packs of `tool.git`, and loose objects, into one pack. Every object stays, also without a ref."""
        objects = self.path / "objects"
        if len(list((objects / "pack").glob("*.pack"))) <= MOST_PACKS:
            return
        with FileLock(self._lock, thread_local=False, fallback_to_soft=False, preserve_lock_file=True):
            (objects / "pack" / "multi-pack-index.lock").unlink(missing_ok=True)  # its git was killed
            loose = list(objects.glob("??/[0-9a-f]*"))
            names = "".join(f"{file.parent.name}{file.name}\n" for file in loose).encode()
            self.git.run("pack-objects", "-q", "--non-empty", str(objects / "pack" / "pack"), stdin=names)
            for file in loose:
                file.unlink()
            for step in (("write",), ("repack", "--batch-size=0"), ("expire",)):
                self.git.run("multi-pack-index", *step)

    def close(self) -> None:
        self.git.close()

    def make_bare(self, path: Path) -> None:
        """A new bare repository that borrows from `tool.git` and from the user."""
        self._init(path)
        self.refresh(path)

    def _init(self, path: Path) -> None:
        """Make a repository in one step; one that is there and lost its HEAD keeps its objects and refs."""
        make_below(self.common_dir, path.parent)
        kind = "sha256" if self._sha256 else "sha1"
        draft = path if path.is_dir() else path.with_name(f"{path.name}.new")
        if draft != path:
            shutil.rmtree(draft, ignore_errors=True)
        maker = Git(path.parent, env=self.env)
        maker.run("init", "-q", "--bare", "--template=", f"--object-format={kind}", str(draft))
        draft.rename(path)

    def refresh(self, path: Path) -> None:
        """Write the configuration and copy what the user's repository says of history and ignored files.

        Whose objects are borrowed is written anew as well: the user may have moved the repository.
        """
        lenders = [self.common_dir / "objects", *([self.path / "objects"] if path != self.path else [])]
        (path / "objects" / "info").mkdir(parents=True, exist_ok=True)
        write_whole(path / "objects" / "info" / "alternates", b"".join(os.fsencode(place) + b"\n" for place in lenders))
        fixed: list[tuple[str, str | None]] = [("core.repositoryformatversion", "1" if self._sha256 else "0")]
        fixed += [("core.bare", "true"), *config.OWN]
        fixed += [("extensions.objectformat", "sha256")] if self._sha256 else []
        if path == self.path or self._lfs:  # a lane has a store of its own beside the one that its alternates lead to
            fixed += [("lfs.storage", str(self.common_dir / (self._lfs or "lfs")))]
        write_whole(path / "config", os.fsencode(config.config_text([*self._config, *fixed])))
        for name in _COPIED:
            source, goal = self.common_dir / name, path / name
            if source.is_file():
                goal.parent.mkdir(exist_ok=True)
                write_whole(goal, source.read_bytes())
            else:
                goal.unlink(missing_ok=True)

    def without_filters(self) -> list[str]:
        """Settings by which git takes files as they are."""
        drivers = {key.split(".", 1)[1].rpartition(".")[0] for key, _ in self._config if key.startswith("filter.")}
        off = ("required=false", "clean=", "smudge=", "process=")
        return [f"filter.{driver}.{setting}" for driver in sorted(drivers) for setting in off]

    def mirrored(self, wanted: Sequence[str]) -> dict[str, Oid]:
        """The user's refs that an agent sees: the named ones and every tag."""
        refs = refs_snapshot(self.common_dir, self.user)
        return {name: oid for name, oid in refs.items() if name in wanted or name.startswith("refs/tags/")}

    # --- moving objects ---------------------------------------------------------------------------------

    def take(self, lane_objects: Path, tips: Sequence[Oid], *, without: Sequence[Oid]) -> None:
        """Copy what `tips` add to `without` from a lane into `tool.git`, checked by git's own fsck."""
        transfer(self.git, self.git, tips, without=without, env=borrowing(lane_objects), kept="")
        self._share_lfs(lane_objects.parent)

    def _share_lfs(self, lane: Path) -> None:
        """Copy content that the agent's git-lfs has stored into the user's store; its name there is its hash."""
        source, store = lane / "lfs" / "objects", self.common_dir / "lfs"
        for file in source.glob("??/??/*"):
            place, draft = store / "objects" / file.relative_to(source), store / "tmp" / f"{file.name}.{os.getpid()}"
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                draft.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, draft)
                draft.replace(place)

    def copy_to_user(self, tips: Sequence[Oid], *, without: Sequence[Oid], keep: str = KEEP) -> str:
        """Copy commits of `tool.git` into the user's repository; the path of the pack's `.keep` file, or nothing.

        Until a ref names the commits, the `.keep` file protects them from the user's `git gc`.
        """
        for lane in self.lanes.glob("*.git"):  # the user may have pruned it: no ref of theirs named it yet
            self._share_lfs(lane)
        missing = [oid for oid in tips if self.user.object(oid) is None]
        if not missing:
            return ""
        pack = transfer(self.git, self.user, missing, without=without, local=True, kept=keep)
        return str(self.common_dir / "objects" / "pack" / f"pack-{pack}.keep")

    def publish(self, *orders: str, tips: Sequence[Oid], without: Sequence[Oid]) -> None:
        """Copy commits into the user's repository and change refs there, by the orders of `update-ref --stdin`."""
        keep = self.copy_to_user(tips, without=without)
        self.user.update_refs(*orders)
        if keep:
            Path(keep).unlink(missing_ok=True)


def transfer(
    source: Git,
    goal: Git,
    tips: Sequence[Oid],
    *,
    without: Sequence[Oid],
    kept: str,
    local: bool = False,
    env: Mapping[str, str] | None = None,
) -> str:
    """Pack what is reachable from `tips` and not from `without`, and index it strictly; the name of the pack.

    A concurrent `gc --prune=now` breaks `fetch` and `unpack-objects`; it does not break this (measured).
    """
    wanted = "".join([*(f"{oid}\n" for oid in tips), *(f"^{oid}\n" for oid in without)]).encode()
    how = ("--revs", "--thin", "--stdout", "-q", "--delta-base-offset", *(["--local"] if local else []))
    check = ("--stdin", "--fix-thin", "--strict", *([f"--keep={kept}"] if kept else []))
    with source.start("pack-objects", *how, env=env) as packing:
        with goal.start("index-pack", *check, env=env, stdin=packing.stdout) as indexing:
            assert packing.stdin is not None
            assert packing.stdout is not None
            packing.stdout.close()  # index-pack has it now; it must see its end
            with suppress(BrokenPipeError):  # it was killed, and its code says so
                packing.stdin.write(wanted)
                packing.stdin.flush()
            with suppress(BrokenPipeError):
                packing.stdin.close()
            try:
                out, err = indexing.communicate(timeout=TRANSFER_S)
            except subprocess.TimeoutExpired:
                packing.kill()
                indexing.kill()
                raise GitFailed(f"copying objects into {goal.cwd} took longer than {TRANSFER_S:.0f} s") from None
        assert packing.stderr is not None
        said = packing.stderr.read()
        packing.stderr.close()
    if packing.returncode or indexing.returncode:
        raise _failed(os.fsdecode(said + err), (packing.returncode, indexing.returncode), tips[0], goal)
    return out.decode().split()[-1]


def _failed(words: str, codes: tuple[int, int], tip: Oid, goal: Git) -> GitFailed:
    """A full disk or a killed git says nothing of the commits; everything else is their fault."""
    told = in_a_line(words)
    if remedy_for(words) or any(code < 0 and code != -signal.SIGPIPE for code in codes):
        return GitFailed(f"copying {tip[:12]} into {goal.cwd} failed: {told or 'git was killed'}")
    return ObjectsRefused(f"git refuses the objects of {tip[:12]}: {told}")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader sees half of it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.write_bytes(content)
    draft.replace(path)
