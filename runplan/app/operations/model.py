"""Who asks for something, and the answers."""

import functools
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from runplan.adapters.configuration.load import environment, load_user
from runplan.adapters.processes import AGENT_MARK, agent_above
from runplan.domain.errors import Exit, RefusedEarly, UsageError
from runplan.domain.run.events import Event
from runplan.domain.settings.schema import Settings
from runplan.domain.text import plain
from runplan.engine.loop.context import RepositoryContext, open_context
from runplan.hosts.daemon.state import take_death


class Where(Enum):
    AS_BEFORE = "as before"  #: where the run was started; the daemon carries out a new one
    HERE = "here"
    DAEMON = "daemon"


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks, by default this process: its directory and environment, and where the messages go meanwhile."""

    cwd: Path = Path()
    env: Mapping[str, str] = field(default_factory=environment)
    by: str = "api"  #: the way: terminal, page, mcp, api, or `link` and its id
    say: Callable[[str], None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None
    show: Callable[[Event], None] = lambda _: None  #: the events of a run in this process
    where: Where = Where.AS_BEFORE  #: the run that is begun or continued is carried out
    limit_s: float = math.inf  #: how long an answer of the daemon is waited for
    waits: bool = False  #: for the run's end; else a fleet need only have stored a start

    def open(self, *, lenient: bool = False) -> AbstractContextManager[RepositoryContext]:
        """The repository of the directory; `lenient`: broken settings are a warning."""
        return open_context(self.cwd, env=self.env, warn=self.warn if lenient else None)

    def recording(self) -> tuple["Caller", list[str]]:
        """The same caller, and a list that gets everything that is said to it."""
        said: list[str] = []

        def say(text: str) -> None:
            said.append(plain(text))
            self.say(text)

        def warn(text: str) -> None:
            said.append(f"warning: {plain(text)}")
            self.warn(text)

        return replace(self, say=say, warn=warn), said

    @property
    def user_settings(self) -> Settings:
        return load_user(self.env)

    def refuse_to_agents(self, verb: str) -> None:
        """Agents may not start, approve or stop runs."""
        if self.env.get(AGENT_MARK):
            raise RefusedEarly(f"{verb} does not run inside an agent ({AGENT_MARK} is set)")
        if agent := agent_above(os.getpid()):
            raise RefusedEarly(f"{verb} does not run inside an agent ({agent})")

    def begin(self, verb: str, *, changes: bool) -> str:
        """Refuse a verb that changes something to agents; how the last daemon died, for the first who asks."""
        if changes:
            self.refuse_to_agents(verb)
        return "" if verb == "daemon" else take_death(self.env)


class Accepted(Struct, frozen=True, kw_only=True):
    plan: str = ""
    run: str = ""  #: that carries it out; "" for none
    seen: int | None = None  #: the newest event before the request; a follower begins after it
    is_ended: bool = False  #: the run was carried out in this process, to its end or to a wait for a person
    root: str = ""  #: the checkout of such a run, which may have removed the caller's directory
    notices: tuple[str, ...] = ()  #: what was said meanwhile


class Declined(Struct, frozen=True, kw_only=True):
    """Understood, and there is nothing to do, or not now. `exit` says which."""

    exit: Exit = Exit.DONE
    notices: tuple[str, ...] = ()


Answer: TypeAlias = Accepted | Declined
R = TypeVar("R")
Operation: TypeAlias = Callable[[Caller, R], Answer]


def operation(function: Operation[R]) -> Operation[R]:
    """Refuse the operation to agents, and keep what it says in its answer."""

    @functools.wraps(function)
    def carry_out(caller: Caller, request: R) -> Answer:
        caller.refuse_to_agents(function.__name__.replace("_", "-"))
        if "\0" in "".join(value for value in vars(request).values() if isinstance(value, str)):
            raise UsageError("a word of the request holds a null character")
        caller, notices = caller.recording()
        return replace(function(caller, request), notices=tuple(notices))

    return carry_out
