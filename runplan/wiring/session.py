"""Opens everything a run needs, and closes it again; agents outlive it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters import repository as repositories
from runplan.adapters.anchored import make_below
from runplan.adapters.calling import Agents
from runplan.adapters.candidate import Candidates
from runplan.adapters.checkout import Checkouts
from runplan.adapters.claims import Claims
from runplan.adapters.dispatches import Dispatches
from runplan.adapters.sandbox import Sandbox
from runplan.adapters.settings import worktree_root
from runplan.adapters.store.sqlite import Store
from runplan.app.world import World
from runplan.core.errors import Unreachable
from runplan.core.quickclass import dataclass
from runplan.git.fingerprint import Fingerprints
from runplan.git.removal import Removal
from runplan.git.workspace import Workspace
from runplan.git.worktrees import Worktrees
from runplan.landing import modes
from runplan.wiring import testing
from runplan.wiring.branches import settle_lost_landings
from runplan.wiring.landers import landing_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.core.events import RunStarted
    from runplan.core.gitfacts import Identity
    from runplan.ports import Clock
    from runplan.wiring.here import Here

PROMPTS = ("implement", "fix", "verify")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The open rooms of one repository."""

    here: Here
    user: Identity
    sign: bool
    clock: Clock
    store: Store
    claims: Claims
    dispatches: Dispatches
    workspace: Workspace
    worktrees: Worktrees
    removal: Removal
    point: testing.KillPoint

    def new_run_id(self) -> str:
        return testing.new_run_id(self.here.env)

    def fixed(self, asked: RunStarted) -> RunStarted:
        """As it is: who starts a run here has sent its settings along."""
        return asked

    def world(self, *, run: str, started: RunStarted) -> World:
        """Everything the actions of one run may reach, where that run was asked to land."""
        at = self.here.for_run(started)
        git, root, common = at.repository.git, at.repository.root, at.repository.common_dir
        point = self.point
        return World(
            run=run,
            plan=started.plan,
            slug=started.slug,
            root=root,
            settings=at.settings,
            prompts={role: prompt_template(role) for role in PROMPTS},
            user=self.user,
            sign=self.sign,
            clock=self.clock,
            store=self.store,
            objects=self.workspace.git,
            worktrees=self.worktrees,
            removal=self.removal.towards(at.targets),
            candidates=Candidates(self.workspace.git, common_dir=self.workspace.path, user=git),
            lander=modes.open_lander(landing_place(at), at.settings.run, point),
            fingerprints=Fingerprints(git, common_dir=common, prefix=at.settings.run.branch_prefix),
            dispatches=self.dispatches,
            agents=Agents(
                at.settings.agents,
                root=root,
                plan=started.plan,
                run=run,
                caller=at.env,
                checks=at.settings.tests.env,
                sandbox=Sandbox(
                    Checkouts(git, root=root, common_dir=common),
                    worktrees=self.workspace.root,
                    lanes=self.workspace.lanes,
                    env=at.env,
                ),
            ),
            claims=self.claims,
            point=point,
        )


@contextlib.contextmanager
def session(at: Here, *, wakeup: int | None = None) -> Iterator[Session]:
    """Refuses what cannot be worked in; the spawner is started first, so that it is ready when it is needed.

    `wakeup` is a descriptor that interrupts a wait for dispatches.
    """
    settings = at.settings
    user = repositories.require_workable(at.repository, target=at.target, prefix=settings.run.branch_prefix)
    git, common = at.repository.git, at.repository.common_dir
    sign = repositories.signing(git)
    root = worktree_root(at.repository.root, settings, at.env)
    _make(root, below=Path(root.anchor), remedy="set run.worktrees to a directory that can be made")
    _make(at.state, below=common, remedy="the journal is kept there")
    settle_lost_landings(at)
    workspace = Workspace(git, common_dir=common, state=at.state, root=root)
    workspace.prepare()
    with Dispatches(at.state / "dispatch", wakeup=wakeup) as dispatches, contextlib.ExitStack() as closing:
        store = Store(at.state)
        closing.callback(store.close)
        closing.callback(workspace.close)
        worktrees = Worktrees(workspace, lock_dir=at.state / "locks", mirror=at.mirrored)
        removal = Removal(workspace, worktrees, targets=at.targets)
        claims = Claims(store, at.state / "locks")
        closing.callback(claims.close)
        yield Session(
            here=at,
            user=user,
            sign=sign,
            clock=testing.clock(at.env),
            store=store,
            claims=claims,
            dispatches=dispatches,
            workspace=workspace,
            worktrees=worktrees,
            removal=removal,
            point=testing.kill_point(at.env),
        )


def _make(directory: Path, *, below: Path, remedy: str) -> None:
    try:
        make_below(below, directory)
    except OSError as error:
        raise Unreachable(f"{directory} cannot be made: {error.strerror}; {remedy}") from error


def prompt_template(role: str) -> str:
    """Installed, the templates lie inside the package; in a checkout, beside it."""
    package = Path(__file__).parent.parent
    inside = package / "config" / "prompts" / f"{role}.md"
    beside = package.parent / "config" / "prompts" / f"{role}.md"
    return (inside if inside.exists() else beside).read_text(encoding="utf-8")
