"""What a step may reach (RunContext), and its two halves: `observe` and `do`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan import names
from runplan.errors import Unreachable
from runplan.text import command
from runplan.times import git_date, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from runplan.agents.calling import Agents
    from runplan.clock import Clock
    from runplan.git.candidate import Candidates
    from runplan.git.command import Git
    from runplan.git.fingerprint import Fingerprints
    from runplan.git.removal import Removal
    from runplan.git.worktrees import Worktrees
    from runplan.gitfacts import Identity
    from runplan.landing.lander import Lander
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.settings.schema import Settings
    from runplan.store.claims import Claims
    from runplan.store.sqlite import Store
    from runplan.supervise.dispatches import Dispatches


class RunContext(Struct, frozen=True, kw_only=True):
    """One repository, its settings, and the objects to reach it."""

    run: str  #: the id of the run at work
    plan: str
    slug: str
    root: Path  #: the main checkout
    settings: Settings
    prompts: Mapping[str, str]  #: templates by role
    user: Identity
    sign: bool  #: whether landed commits are signed
    clock: Clock
    store: Store
    objects: Git
    worktrees: Worktrees
    removal: Removal
    candidates: Candidates
    lander: Lander
    fingerprints: Fingerprints
    dispatches: Dispatches
    agents: Agents
    claims: Claims
    lane: str = ""  #: which of several phases side by side is worked

    @property
    def mark(self) -> str:
        """What dispatches, candidate and landing are named after: the run, and the lane where there is one."""
        return names.mark(self.run, self.lane)

    @property
    def candidate(self) -> str:
        return names.candidate_ref(self.run, self.lane)

    @property
    def worktree(self) -> str:
        """The name of the run's one worktree; each lane has its own."""
        return names.worktree_name(str(self.root), self.slug, self.lane)

    @property
    def report(self) -> str:
        return names.report_path(self.settings.paths.reports, self.slug)

    def branch(self, phase: str) -> str:
        return f"refs/heads/{names.branch(self.settings.run.branch_prefix, self.slug, phase)}"

    def tip(self) -> str:
        """Where the target stands; it can be gone only because somebody took it away meanwhile."""
        tip = self.lander.tip()
        if tip is None:
            run = self.settings.run
            if self.lander.ref.startswith("refs/remotes/"):
                push = command("git", "push", run.remote, run.target)
                raise Unreachable(f"{run.remote} has no branch {run.target} any more; make it again: {push}")
            raise Unreachable(f"the branch {run.target} is gone; make it again")
        return tip

    def iso(self) -> str:
        return iso(self.clock.now())

    def git_date(self) -> str:
        return git_date(self.clock.now())


def unseen(action: Any, state: RunState, world: RunContext) -> tuple[Event, ...]:  # noqa: ARG001 - the shape of an observer
    """For actions that may simply be done again: their doing is idempotent and leaves the world as it finds it."""
    return ()


class Doing(Struct, frozen=True, kw_only=True):
    """`observe` answers from git, the process table or the store, never from memory; `do` yields facts as they come.

    An intent is recorded by yielding it: it is on disk before `do` goes on, as is every fact that may not wait
    (run/events.py).
    """

    do: Callable[[Any, RunState, RunContext], Iterator[Event]]
    observe: Callable[[Any, RunState, RunContext], tuple[Event, ...]] = unseen


def phase_of(state: RunState) -> PhaseRun:
    """The phase at work; the machine asks for phase actions only while there is one."""
    assert state.phase is not None
    return state.phase
