"""Opens a repository for the daemon: in the thread that asks, with the settings and the environments of now."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.anchored import not_there
from runplan.adapters.settings import variables
from runplan.adapters.store.schedules import Schedules
from runplan.adapters.store.wishes import Wishes
from runplan.core.errors import PlanUnreadable
from runplan.core.events import RunStarted
from runplan.core.eventtext import from_json
from runplan.core.plan import parse
from runplan.core.quickclass import dataclass
from runplan.core.settingstext import file_mark, kept
from runplan.wiring.here import here_at
from runplan.wiring.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runplan import ports
    from runplan.adapters.configurations import Configurations
    from runplan.app.world import World
    from runplan.core.config import Settings
    from runplan.wiring.here import Here
    from runplan.wiring.session import Session


class Environments:
    """What callers sent along, in memory only: the keys of their agents are in there."""

    def __init__(self, own: Mapping[str, str]) -> None:
        #: The daemon's; settings among it would hold for runs of callers who know nothing of them.
        self.own = {name: value for name, value in own.items() if name not in variables(own)}
        self._sent: dict[tuple[str, str], Mapping[str, str]] = {}

    def keep(self, root: str, plan: str, sent: Mapping[str, str], *, anew: bool) -> None:
        """What a run sees from now on; unless it is begun anew, what this caller does not have stays as it was."""
        if not sent:
            return
        before = {} if anew else self._sent.get((root, plan), {})
        self._sent[(root, plan)] = {**before, **sent}

    def lend(self, root: str, plan: str, sent: Mapping[str, str], *, anew: bool) -> Callable[[], None]:
        """Keep it; what is answered takes it back."""
        before = self._sent.get((root, plan))
        self.keep(root, plan, sent, anew=anew)

        def take_back() -> None:
            if before is None:
                self._sent.pop((root, plan), None)
            else:
                self._sent[(root, plan)] = before

        return take_back

    def of(self, root: str, plan: str) -> Mapping[str, str]:
        return self._sent.get((root, plan), self.own)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskRooms:
    """The rooms of one repository, in which every run sees the environment of whoever asked for it."""

    session: Session
    root: str
    environments: Environments
    settings: Callable[[Mapping[str, str]], Settings]  #: of now, for somebody with that environment
    seen: dict[str, Mapping[str, str]]  #: by run: the environment its world was made with

    @property
    def claims(self) -> ports.Claims:
        return self.session.claims

    @property
    def store(self) -> ports.Store:
        return self.session.store

    @property
    def clock(self) -> ports.Clock:
        return self.session.clock

    def new_run_id(self) -> str:
        return self.session.new_run_id()

    def fixed(self, asked: RunStarted) -> RunStarted:
        """A schedule keeps no settings: each of its runs has those of its own start, below what its caller gave."""
        if asked.settings:
            return asked
        here = self.session.here
        env = {**self._env(asked.plan), **dict(asked.given)}
        at = replace(here, env=env).towards(asked.landing, target=asked.target, remote=asked.remote)
        file, at = at.committed(), at.with_committed_settings()
        run = at.settings.run
        return replace(
            asked,
            max_fix_cycles=run.max_fix_cycles,
            test_command=at.settings.tests.command,
            setup=run.setup,
            clean=run.clean,
            parallel=run.parallel,
            settings=kept(at.settings),
            settings_file=file_mark(file.content if file is not None else None),
        )

    def world(self, *, run: str, started: RunStarted) -> World:
        env = self.seen[run] = self._env(started.plan)
        return replace(self.session, here=replace(self.session.here, env=env)).world(run=run, started=started)

    def renewed(self, world: World, started: RunStarted) -> World:
        """The same with the keys of now; itself where they are those."""
        same = self.seen.get(world.run) == self._env(started.plan)
        return world if same else self.world(run=world.run, started=started)

    def _env(self, plan: str) -> Mapping[str, str]:
        return self.environments.of(self.root, plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDesk:
    """What a desk works with."""

    rooms: DeskRooms
    dispatches: ports.Dispatches
    clock: ports.Clock
    schedules: Schedules
    wishes: Wishes

    def left(self) -> list[RunStarted]:
        store = self.rooms.session.store
        found = []
        for row in store.unfinished():
            facts = (fact for fact in store.events(row.id) if fact.type == "RunStarted")
            started = next((from_json(fact.type, fact.body) for fact in facts), None)
            if isinstance(started, RunStarted) and started.daemon:
                found.append(started)
        return found

    def complete(self, plan: str) -> bool:
        at = self.rooms.session.here.for_plan(plan)
        text = at.repository.git.blob(at.tip(), plan)
        try:
            return text is not None and parse(text, path=plan).complete
        except PlanUnreadable:
            return False

    def timing(self) -> tuple[str, str]:
        run = self.rooms.settings(self.rooms.environments.own).run
        return run.timezone, run.misfire

    def missing(self, started: RunStarted) -> tuple[str, ...]:
        known = self.rooms.environments.of(self.rooms.root, started.plan)
        return tuple(name for name in started.needs if name not in known)


def _required(at: Here, root: str) -> Here:
    if at.repository.root.resolve() != Path(root).resolve():
        raise not_there(Path(root))
    return at


@contextlib.contextmanager
def open_desk(
    root: str, wakeup: int, *, environments: Environments, configurations: Configurations
) -> Iterator[OpenedDesk]:
    """The repository, open for work until the desk is closed; not another one that lies around it."""
    if not Path(root).is_dir():
        raise not_there(Path(root))
    with (
        here_at(Path(root), environments.own, configurations.read) as at,
        session(_required(at, root), wakeup=wakeup) as opened,
    ):
        yield OpenedDesk(
            rooms=DeskRooms(
                session=opened,
                root=root,
                environments=environments,
                settings=functools.partial(configurations.read, at.repository.root),
                seen={},
            ),
            dispatches=opened.dispatches,
            clock=opened.clock,
            schedules=Schedules(opened.store),
            wishes=Wishes(opened.store),
        )
