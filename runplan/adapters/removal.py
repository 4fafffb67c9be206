"""Removes worktrees, branches and logs, and nothing whose content is not provably elsewhere."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from runplan.adapters.containment import on_target
from runplan.adapters.dispatch_files import DispatchFiles
from runplan.adapters.hiding import honest_status
from runplan.adapters.mending import Mender
from runplan.adapters.ownrefs import drop_broken, is_symbolic, last_logged, own_tip, read_refs
from runplan.adapters.parking import Parking
from runplan.adapters.plainplaces import PlainPlaces
from runplan.adapters.registry import Entry, calm, entries, entry_of, linked_to, note_shown, worktrees_locked
from runplan.adapters.repository import HEADS
from runplan.adapters.status import nested_repository
from runplan.adapters.trash import Trash, delete_tree
from runplan.adapters.treediff import changes
from runplan.core.errors import GitFailed, RefusedEarly
from runplan.core.gitfacts import Kept, Removed
from runplan.core.guard import is_agent
from runplan.core.names import CANDIDATES, PARKED
from runplan.core.removal import Keep, OnTarget, ParkFirst, Remains, Remove, safe_to_remove
from runplan.core.trailers import PLAN, read_trailers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Oid


class Removal:
    """What runplan made in one repository, taken away again; every call may be repeated."""

    def __init__(self, git: Git, *, root: Path, common_dir: Path, lock_dir: Path, targets: tuple[str, ...]) -> None:
        self._git = git
        self._root = (git.cwd / root.expanduser()).resolve()
        self._common_dir = common_dir
        self._lock_dir = lock_dir
        self.targets = targets  #: full ref names of places where work lands; the first is the local branch
        self._trash = Trash(self._root)
        self._mender = Mender(git, common_dir, self._trash)
        self._places = PlainPlaces(common_dir)
        self.parking = Parking(git, common_dir)

    def towards(self, targets: tuple[str, ...]) -> Removal:
        """The same, for work that lands at other places."""
        other = copy(self)
        other.targets = targets
        return other

    def close(self) -> None:
        """Wait for what is deleted in the background."""
        self._trash.close()

    def sweep_trash(self) -> None:
        """Delete, in the background, what processes that died had moved aside."""
        self._trash.sweep()

    # --- worktrees -----------------------------------------------------------------------------------

    def worktree(self, name: str) -> Removed | Kept:
        """Take the worktree `name` away: directory, entry, everything; what only it holds is parked."""
        path = self._root / name
        with worktrees_locked(self._lock_dir):
            try:
                entry = self._mender.mended(path, head=self._somewhere())
            except RefusedEarly as refused:
                return Kept(what=str(path), why=str(refused))
            if entry is None:
                with suppress(FileNotFoundError):
                    path.rmdir()  # an empty directory at most
                return Removed(what=str(path))
            calm(entry)
            remains = self._remains(entry)
            match safe_to_remove(remains):
                case Keep(why=why):
                    return Kept(what=str(path), why=why)
                case ParkFirst():
                    parked = self.parking.salvage(entry, uncommitted=remains.uncommitted)
                case Remove():
                    parked = ""
                case unreachable:
                    assert_never(unreachable)
            self._mender.forget(path)
            return Removed(what=str(path), parked=parked)

    def _somewhere(self) -> Oid:
        """A commit for a directory to stand on that has lost its own."""
        return next((tip for ref in (*self.targets, "HEAD") if (tip := self._git.tip(ref))), "")

    def _remains(self, entry: Entry) -> Remains:
        inside = processes_inside(entry.worktree)
        if entry.shown or inside:
            return Remains(on_target=OnTarget.REACHABLE, inside=inside)
        state = honest_status(self._git, entry)
        return Remains(
            # A branch keeps its commits itself; those of a detached HEAD are looked at when they are parked.
            on_target=OnTarget.REACHABLE if entry.attached else OnTarget.NO,
            uncommitted=not state.clean,
            nested=nested_repository(state),
        )

    # --- branches and other refs ---------------------------------------------------------------------

    def ref(self, ref: str) -> Removed | Kept:
        """Take a branch or candidate (a full ref name) away; commits the target does not hold are parked."""
        self._places.clear(self._places.refs(ref))
        tip = own_tip(self._common_dir, self._git, ref)
        if tip is None:
            return self._broken(ref)
        parked = ""
        match safe_to_remove(self._ref_remains(ref, tip)):
            case Keep(why=why):
                return Kept(what=ref, why=why)
            case ParkFirst():
                parked = self.parking.park_ref(tip, ref)
            case Remove():
                pass
            case unreachable:
                assert_never(unreachable)
        self._let_go(ref)
        if self._git.run("update-ref", "--no-deref", "-d", ref, tip, ok=(0, 1, 128)).code != 0:
            return Kept(what=ref, why="it moved meanwhile")
        return Removed(what=ref, parked=parked)

    def _broken(self, ref: str) -> Removed:
        """Take a ref of ours away that holds no commit; what it held last is parked."""
        last = None if is_symbolic(self._common_dir, self._git, ref) else last_logged(self._common_dir, self._git, ref)
        unkept = last is not None and self._held(last) is OnTarget.NO
        parked = self.parking.park_ref(last, ref) if last is not None and unkept else ""
        self._let_go(ref)
        drop_broken(self._common_dir, self._git, ref)
        return Removed(what=ref, parked=parked)

    def _let_go(self, ref: str) -> None:
        """Detach every worktree that stands on the ref, as far as it leads anywhere."""
        for entry in entries(self._common_dir):
            # Ours, or it had been kept; a directory that names another repository is left to whoever made it so.
            if entry.attached != ref or linked_to(entry.worktree) != entry.directory:
                continue
            if (tip := self._git.tip(ref)) is not None:
                if self._root in entry.worktree.parents:
                    calm(entry)
                # Its HEAD alone: files and index need not be fit for a checkout.
                self._git.update_refs(f"update worktrees/{entry.directory.name}/HEAD {tip}")

    def free(self, refs: Iterable[str]) -> None:
        """Take away locks that dead processes left on refs of ours; a lock that somebody holds open is theirs."""
        for ref in refs:
            lock = self._common_dir / f"{ref}.lock"
            if lock.exists() and not held_open(lock):
                lock.unlink(missing_ok=True)

    def landed(self, refs: Mapping[str, Oid], *, worktree: Path, onto: Oid) -> None:
        """Delete refs whose landing was observed, and let the worktree's HEAD rest on `onto`, all at once."""
        lines = [f"delete {ref} {tip}" for ref, tip in refs.items() if not self._used_by(ref)]
        entry = entry_of(self._common_dir, worktree)
        if entry is not None:
            lines = [f"update worktrees/{entry.directory.name}/HEAD {onto}", *lines]
            calm(entry)  # a killed process may have left its lock
            # What lies about there was left by gates, after the work had been taken: nobody's.
            note_shown(entry, onto)
        self._git.update_refs(*lines)

    def _ref_remains(self, ref: str, tip: Oid) -> Remains:
        held = self._held(self._work_of(tip) if ref.startswith(CANDIDATES) else tip)
        if ref.startswith(PARKED) and held is not OnTarget.REACHABLE and len(self._git.commit(tip).parents) > 1:
            held = OnTarget.NO  # staged content is kept beside the files; the target was compared with those only
        return Remains(on_target=held, used_by=self._used_by(ref))

    def _used_by(self, ref: str) -> str:
        """A checkout of the user's that stands on the ref, also where it is not to be reached now."""
        main = Entry(directory=self._common_dir, worktree=self._git.cwd)
        places = (place for place in (main, *entries(self._common_dir)) if place.attached == ref)
        return next((str(place.worktree) for place in places if self._root not in place.worktree.parents), "")

    def _work_of(self, tip: Oid) -> Oid:
        """A candidate without the bookkeeping we put on top: of each phase the target keeps its own."""
        commit = self._git.commit(tip)
        plan = read_trailers(commit.message).get(PLAN)
        if not plan or len(commit.parents) != 1:
            return tip
        changed = changes(self._git, self._git.commit(commit.parents[0]).tree, commit.tree)
        ours = all(one.path == plan or one.path.rpartition("/")[2].startswith("plan-") for one in changed)
        return commit.parents[0] if ours else tip

    def _held(self, tip: Oid) -> OnTarget:
        found = (on_target(self._git, tip, target) for target in self.targets)
        return next((held for held in found if held is not OnTarget.NO), OnTarget.NO)

    # --- logs ----------------------------------------------------------------------------------------

    def log(self, directory: Path, *, used_by: str, landed: bool, dry_run: bool) -> Removed | Kept:
        """Take the records of one dispatch away, once what it tells of has landed and its run is over."""
        files = DispatchFiles(directory)
        remains = Remains(
            on_target=OnTarget.REACHABLE if landed else OnTarget.NO,
            used_by=used_by or ("a process that still writes it" if files.locked() else ""),
        )
        match safe_to_remove(remains):
            case Keep(why=why):
                return Kept(what=str(directory), why=why)
            case ParkFirst():
                return Kept(what=str(directory), why="what it tells of has not landed")
            case Remove():
                if not dry_run:
                    delete_tree(directory)
                return Removed(what=str(directory))
            case unreachable:
                assert_never(unreachable)

    # --- everything that is left over ----------------------------------------------------------------

    def gc(
        self, *, dry_run: bool, prefix: str, active: Collection[str], known: Collection[str] = ()
    ) -> list[Removed | Kept]:
        """What runs that have ended left behind: removed, or with `dry_run` only listed, or kept and why.

        `active` names what live runs use: full ref names and worktree names; `known` the branches that runs have
        made. Another branch below the prefix goes only when an agent made its commits, and a parked ref only when
        the target holds its content.
        """
        places = PlainPlaces(self._common_dir, prefix=f"{HEADS}{prefix}")
        odd = places.refs()
        told: list[Removed | Kept] = [Removed(what=f"the {one.what} at {places.name(one)}") for one in odd]
        if not dry_run:
            places.clear(odd)
        look = self._dry_worktree if dry_run else self.worktree
        told += [
            _told_of(str(self._root / name), partial(look, name))
            for name in self._worktree_names()
            if name not in active
        ]
        told += [
            _told_of(ref, partial(self._gc_ref, ref, dry_run=dry_run, known=ref in known))
            for ref in self._own_refs(prefix)
            if ref not in active
        ]
        told += [Removed(what=str(left)) for left in self._trash.leftovers()] if dry_run else []
        if not dry_run:
            self.sweep_trash()
        return told

    def _worktree_names(self) -> list[str]:
        ours = {entry.worktree for entry in entries(self._common_dir) if entry.worktree.parent == self._root}
        found = self._root.iterdir() if self._root.is_dir() else ()
        home = self._common_dir / "worktrees"
        ours |= {path for path in found if (linked_to(path) or Path()).parent == home}
        return sorted(path.name for path in ours)

    def _own_refs(self, prefix: str) -> list[str]:
        # A branch of ours has a plan and a phase after the prefix; without a prefix none can be told from others.
        branches = f"{HEADS}{prefix}"
        refs = read_refs(self._common_dir, self._git)
        return [
            ref
            for ref in sorted({*refs.resolved, *refs.symbolic})
            if ref.startswith((CANDIDATES, PARKED))
            or (prefix and ref.startswith(branches) and "/" in ref.removeprefix(branches))
        ]

    def _dry_worktree(self, name: str) -> Removed | Kept:
        path = self._root / name
        entry = entry_of(self._common_dir, path)
        if entry is None or entry.half_made or not path.is_dir():
            return Removed(what=str(path))
        remains = self._remains(entry)
        decision = safe_to_remove(remains)
        if isinstance(decision, Keep):
            return Kept(what=str(path), why=decision.why)
        return Removed(what=str(path), parked=PARKED if remains.uncommitted else "")

    def _gc_ref(self, ref: str, *, dry_run: bool, known: bool) -> Removed | Kept:
        if is_symbolic(self._common_dir, self._git, ref):
            if ref.startswith(HEADS) and not known:
                return Kept(what=ref, why="no run here has made it, so it may be somebody's own")
            return Removed(what=ref) if dry_run else self.ref(ref)
        tip = self._git.tip(ref)
        if tip is None:
            return Kept(what=ref, why="it is no commit")
        if ref.startswith(HEADS) and not known and not is_agent(self._git.commit(tip).author):
            return Kept(what=ref, why="no run here has made it, so it may be somebody's own")
        match safe_to_remove(self._ref_remains(ref, tip)):
            case Keep(why=why):
                return Kept(what=ref, why=why)
            case ParkFirst():
                return Kept(what=ref, why=self._told(tip))
            case Remove():
                return Removed(what=ref) if dry_run else self.ref(ref)
            case unreachable:
                assert_never(unreachable)

    def _told(self, tip: Oid) -> str:
        about = self._git.text("log", "-1", "--no-show-signature", "--format=%cs %s", tip, "--")
        return f"{self.targets[0].removeprefix('refs/heads/')} does not hold it: {about}"


def _told_of(what: str, look: Callable[[], Removed | Kept]) -> Removed | Kept:
    """One thing that git cannot read, as an agent may have left it, is kept, and does not stop the others."""
    try:
        return look()
    except GitFailed as error:
        return Kept(what=what, why=f"what it holds is not to be told: {error}")


def held_open(path: Path) -> bool:
    """Whether any process has the file open; where the system does not tell, somebody may have."""
    if not Path("/proc/self/fd").is_dir():
        return True
    for directory in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(link.samefile(path) for link in directory.iterdir()):
                return True
    return False


def processes_inside(path: Path) -> tuple[int, ...]:
    """The processes whose working directory is `path` or below; none where the system does not tell."""
    table = Path("/proc")
    found: list[int] = []
    for process in table.iterdir() if table.is_dir() else ():
        with suppress(OSError):  # ended meanwhile, or not ours to look at
            if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(path):
                found.append(int(process.name))
    return tuple(sorted(found))
