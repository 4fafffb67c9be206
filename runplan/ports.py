"""The contracts between the loop and the world, in the words of core alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from runplan.agents.budgets import Price
    from runplan.agents.endings import Profile
    from runplan.checks.lineage import Lineage
    from runplan.git.fingerprint import Difference, Fingerprint
    from runplan.gitfacts import (
        BranchStanding,
        Change,
        Commit,
        Identity,
        Kept,
        Oid,
        Removed,
        Replayed,
        Unstored,
        WorktreeState,
    )
    from runplan.run.dispatch import DispatchStanding, Launch, Role
    from runplan.run.rows import ClaimResult, EventRow, RunRow


class Clock(Protocol):
    """The only source of the present moment."""

    def now(self) -> datetime: ...

    def sleep_until(self, moment: datetime) -> None: ...


class Store(Protocol):
    """Append-only events, the row of each run, and what is known of baselines."""

    def append(
        self, events: Sequence[tuple[str, str, str]], row: RunRow, *, fence: int, rests: str = "", waits: bool = False
    ) -> None:
        """All or nothing, unless `fence` is old; on disk when it returns, or with the next if it `waits`.

        `rests`: why the schedule rests from now.
        """
        ...

    def flush(self) -> None:
        """Bring to disk what waits."""
        ...

    def require_there(self) -> None:
        """Unreachable while the journal is not where it was opened: the repository is away."""
        ...

    def events(self, run: str, *, after: int = 0) -> list[EventRow]: ...

    def newest(self, plan: str) -> RunRow | None: ...
    def unfinished(self) -> list[RunRow]: ...

    def facts(self, plan: str, kind: str) -> list[EventRow]:
        """The events of one kind over all runs of a plan, oldest first."""
        ...

    def leases(self, plan: str, branch: str) -> int:
        """How many attempts at the plan have worked on the branch."""
        ...

    def since(self, kind: str, at: str) -> list[EventRow]:
        """The events of one kind from a moment on, over all plans, oldest first."""
        ...

    def baseline(self, key: str) -> str | None: ...

    def keep_baseline(self, key: str, results: str, *, at: str) -> None: ...


class Objects(Protocol):
    """Reads what git stores."""

    def tip(self, ref: str) -> Oid | None: ...

    def blob(self, commit: Oid, path: str) -> bytes | None: ...

    def beginning(self, oid: Oid, size: int) -> bytes:
        """The first bytes of a file's content; nothing when there is no such file."""
        ...

    def commit(self, oid: Oid) -> Commit: ...


class Worktrees(Protocol):
    """Lends one worktree to a run, moves it from branch to branch, and takes what agents made there."""

    def path(self, name: str) -> Path: ...

    def tip(self, branch: str) -> Oid | None:
        """The newest commit of a branch that was taken from an agent."""
        ...

    def standing(self, branch: str, base: Oid) -> BranchStanding:
        """What a branch of the user's repository holds compared with `base`."""
        ...

    def lease(
        self, name: str, *, branch: str, base: Oid, pin: str, onto: Oid = "", clean: str, keep: Sequence[str]
    ) -> Path:
        """A clean worktree on a new `branch` at `base`, made or switched; uncommitted work in it is parked first."""
        ...

    def attach(self, name: str, *, branch: str, clean: str, keep: Sequence[str]) -> Path:
        """The worktree on `branch`, made again if it is gone; no agent's uncommitted work is touched."""
        ...

    def take(self, name: str, *, branch: str, base: Oid) -> Oid:
        """Copy the agent's commits out of its repository; the newest one."""
        ...

    def committed(self, name: str, *, branch: str, base: Oid) -> Oid:
        """The newest commit on the branch of an agent that may still be at work."""
        ...

    def published(self, branch: str) -> bool: ...

    def publish(self, branch: str, *, base: Oid) -> str:
        """Bring a branch with work into the user's repository; its full name there, or nothing when it has none."""
        ...

    def hand_over(self, branch: str, *, base: Oid) -> None:
        """Publish the branch, then delete runplan's own."""
        ...

    def unpin(self, pin: str) -> None: ...

    def deliver(self, new: Oid, *, without: Oid) -> None:
        """Copy what is about to land into the user's repository, checked by git's own fsck."""
        ...

    def delivered(self) -> None:
        """A ref holds what was delivered: nothing has to protect it from `git gc` any more."""
        ...

    def head(self, path: Path) -> Oid: ...

    def state(self, path: Path) -> WorktreeState: ...

    def commit_leftovers(
        self,
        path: Path,
        paths: Sequence[str],
        *,
        branch: str,
        message: str,
        author: Identity,
        committer: Identity,
        when: str,
    ) -> Oid | Unstored: ...

    def show(self, path: Path, commit: Oid, *, clean: str, keep: Sequence[str]) -> None:
        """Exactly this commit, detached, without anything else but `keep`."""
        ...

    def copy(self, path: Path, names: Sequence[str], from_root: Path) -> None: ...


class Removal(Protocol):
    """The one way anything is removed: what is not elsewhere is parked first."""

    def worktree(self, name: str) -> Removed | Kept: ...

    def ref(self, ref: str) -> Removed | Kept: ...

    def free(self, refs: Collection[str]) -> None:
        """Delete locks that dead processes left on refs of ours."""
        ...

    def landed(self, refs: Mapping[str, Oid], *, worktree: Path) -> None:
        """Delete refs whose landing was observed."""
        ...


class Candidates(Protocol):
    """Builds what would land, without a checkout."""

    def commits(self, base: Oid, head: Oid) -> tuple[Commit, ...] | None: ...
    def changes(self, base: Oid, head: Oid) -> tuple[Change, ...]: ...
    def lineage(self, base: Oid, head: Oid, *, branch: str, run: str) -> Lineage: ...

    def replay(
        self,
        *,
        base: Oid,
        head: Oid,
        onto: Oid,
        dress: Callable[[Commit], tuple[str, Identity, str]],
        committer: Identity,
        when: str,
        sign: bool,
        whole: bool,
    ) -> Replayed:
        """base..head on `onto`, commit by commit, or as one when `whole` asks for it or it is not one line."""
        ...

    def marked(self, tip: Oid) -> tuple[tuple[Oid, str], ...]:
        """(id, message) of every commit below `tip` that says it was landed, newest first."""
        ...

    def revert(
        self,
        commits: Sequence[Oid],
        *,
        without: Sequence[str],
        onto: Oid,
        message: str,
        author: Identity,
        when: str,
        sign: bool,
    ) -> Replayed:
        """One commit on `onto` that takes back what `commits`, newest first, changed, but for the paths `without`."""
        ...

    def anchor(self, run: str, oid: Oid) -> None: ...
    def drop(self, run: str) -> None: ...

    def bookkeep(
        self,
        *,
        code: Oid,
        files: Mapping[str, bytes],
        message: str,
        author: Identity,
        committer: Identity,
        when: str,
        sign: bool,
        run: str,
    ) -> Oid: ...

    def code_key(self, tree: Oid, without: Sequence[str]) -> str: ...


class Fingerprints(Protocol):
    """Names what changed in the user's repository while a process of ours ran."""

    def take(self) -> Fingerprint: ...

    def compare(self, before: Fingerprint, *, agent: str) -> tuple[Difference, ...]: ...


class Dispatches(Protocol):
    """Starts processes that outlive us, and sees how they ended."""

    def directory(self, id: str) -> Path: ...

    def read(self, id: str, name: str) -> str | None:
        """The text of a file of the dispatch; None when there is none, or one that is too large."""
        ...

    def write(self, id: str, name: str, text: str) -> None:
        """Put a file among those of the dispatch."""
        ...

    def start(self, launch: Launch) -> None: ...

    def standing(self, id: str) -> DispatchStanding: ...

    def end(self, ids: Collection[str], *, grace_s: float) -> None:
        """End them and all they started, at the same time; of those that are over, what they left behind."""
        ...

    def overdue(self, id: str, *, left_s: float | None) -> bool:
        """Whether it has used up what it had left when this was first asked; None for no limit."""
        ...

    def wait(self, ids: Collection[str], *, timeout_s: float | None) -> None: ...


class Agents(Protocol):
    """How agents and the project's own commands are called."""

    def launch(
        self,
        name: str,
        *,
        dispatch: str,
        role: Role,
        phase: str,
        attempt: int,
        cycle: int,
        directory: Path,
        worktree: Path,
        usd: float,
    ) -> tuple[tuple[str, ...], dict[str, str], str]:
        """argv, environment, and the reader of its output."""
        ...

    def version(self, name: str) -> str:
        """The version of the agent's program; "" when it tells none."""
        ...

    def profile(self, name: str, role: Role) -> Profile:
        """What has to be known to judge how a dispatch of this agent in this role ended."""
        ...

    def price(self, name: str) -> Price:
        """What a million tokens of this agent cost, by the settings or by a guess."""
        ...

    def redacted(self, text: str) -> str:
        """The text without secrets: tokens, and the values that agents or commands are given in secret variables."""
        ...

    def command(
        self, line: str, *, dispatch: str, role: Role, phase: str, directory: Path, worktree: Path
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and environment for tests and setup."""
        ...


class Claims(Protocol):
    """Exclusive ownership of plans, courteous ownership of issues, and landings in single file."""

    me: str  #: the identity of this process

    def take_plan(self, plan: str, *, run: str, at: str) -> ClaimResult: ...

    def take_issue(self, number: int, *, run: str, at: str) -> ClaimResult: ...

    def release(self, plan: str, *, run: str) -> None: ...

    def landing_lock(self) -> AbstractContextManager[object]: ...


class Log(Protocol):
    """Facts with fields, for whoever looks after the daemon; a call never raises."""

    def info(self, event: str, /, **fields: object) -> None: ...

    def warning(self, event: str, /, **fields: object) -> None: ...

    def error(self, event: str, /, **fields: object) -> None: ...

    def bind(self, **fields: object) -> Log:
        """The same log, which tells these of every fact: run, phase, dispatch."""
        ...
