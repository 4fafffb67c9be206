"""Who asks for something, what they ask for, and the answers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from runplan.adapters.configuration.load import environment, load_user
from runplan.domain.errors import Exit, RunplanError, UsageError, refused_by_system
from runplan.domain.run.events import Event
from runplan.domain.settings.options import Options
from runplan.domain.settings.schema import Settings
from runplan.domain.text import plain
from runplan.engine.loop.context import RepositoryContext, open_context, refuse_under_agent
from runplan.hosts.daemon.state import take_death


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks: from which directory, with which environment, and where the messages go meanwhile.

    Without a directory and an environment it is this process.
    """

    cwd: Path = Path()
    env: Mapping[str, str] = field(default_factory=environment)
    by: str = "api"  #: the way: terminal, page, mcp, api, or `link` and its id
    say: Callable[[str], None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None
    show: Callable[[Event], None] = lambda _: None  #: the events of a run in this process
    limit_s: float = math.inf  #: how long an answer of the daemon is waited for

    def open(self, *, lenient: bool = False) -> AbstractContextManager[RepositoryContext]:
        """The repository of the directory; `lenient`: broken settings are a warning."""
        return open_context(self.cwd, env=self.env, warn=self.warn if lenient else None)

    def recording(self) -> tuple[Caller, list[str]]:
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
        """Those for all repositories."""
        return load_user(self.env)

    def begin(self, verb: str, *, changes: bool) -> str:
        """Refuse a verb that changes something to agents; how the last daemon died, for the first who asks."""
        if changes:
            refuse_under_agent(verb, self.env)
        return "" if verb == "daemon" else take_death(self.env)


# --- requests ---------------------------------------------------------------------------------------------


class Where(Enum):
    """The process that carries out a run."""

    AS_BEFORE = "as before"  #: where the run was started
    HERE = "here"
    DAEMON = "daemon"


class Request(Struct, frozen=True, kw_only=True):
    """Something that a person asks for. A plan is named by its path, its base name, or a unique part of one."""

    @property
    def changes(self) -> bool:
        """Whether it is more than a question, which agents may ask."""
        return True


class Start(Request, frozen=True, kw_only=True):
    plan: str = ""
    issue: int | None = None  #: instead of a plan
    options: Options = Options()
    where: Where = Where.DAEMON


class WatchIssues(Request, frozen=True, kw_only=True):
    label: str
    options: Options


class Plan(Request, frozen=True, kw_only=True):
    """A plan is to be written for a goal; one of `goal`, `file`, `issue`, `folder` and `revises` says which."""

    goal: str = ""
    file: str = ""
    issue: int | None = None
    folder: str = ""  #: with the texts of a specification
    revises: str = ""  #: the plan that is revised
    phase: str = ""  #: the only phase of it that is revised
    why: str = ""
    quick: bool = False
    rounds: int | None = None  #: None for that of the settings
    agent: str = ""
    critic: str = ""
    out: str = ""
    asks: bool = False
    then: Options | None = None  #: how it is started when it is approved
    where: Where = Where.DAEMON


class Named(Request, frozen=True, kw_only=True):
    """Pause, resume or run now; without a plan, the only schedule is run."""

    plan: str = ""


class Stop(Request, frozen=True, kw_only=True):
    plan: str = ""  #: "" for all of the repository
    keep_schedule: bool = False
    force: bool = False


class Retry(Request, frozen=True, kw_only=True):
    plan: str
    phase: str = ""
    fresh: bool = False
    review: bool = False
    where: Where = Where.AS_BEFORE


class Undo(Request, frozen=True, kw_only=True):
    plan: str
    phase: str


class Judge(Request, frozen=True, kw_only=True):
    """Approve or reject the change or the plan that waits; without a plan, the only one."""

    plan: str = ""
    phase: str = ""
    tree: str = ""  #: only this tree, or this SHA-256 of a plan; "" for the first that waits
    why: str = ""  #: of a rejection: what an agent is to change
    where: Where = Where.AS_BEFORE


class Reply(Request, frozen=True, kw_only=True):
    id: str  #: of the question, or a plan that has one question
    text: str
    where: Where = Where.AS_BEFORE


class Edit(Request, frozen=True, kw_only=True):
    plan: str
    sha256: str  #: of the proposal that was edited
    text: str


class Initialize(Request, frozen=True, kw_only=True):
    skill: bool = False  #: instead of runplan.toml


class Collect(Request, frozen=True, kw_only=True):
    dry_run: bool = False

    @property
    def changes(self) -> bool:
        return not self.dry_run


# --- answers ----------------------------------------------------------------------------------------------


class Accepted(Struct, frozen=True, kw_only=True):
    plan: str = ""
    run: str = ""  #: that carries it out; "" for none
    seen: int | None = None  #: the newest event before the request; a follower begins after it
    is_ended: bool = False  #: the run was carried out in this process, to its end or to a wait for a person
    notices: tuple[str, ...] = ()  #: what was said meanwhile


class Declined(Struct, frozen=True, kw_only=True):
    """Understood, and there is nothing to do, or not now. `exit` says which."""

    exit: Exit = Exit.DONE
    notices: tuple[str, ...] = ()


Answer: TypeAlias = Accepted | Declined
R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Answer)
Operation: TypeAlias = Callable[[Caller, R], Answer]


def operation(function: Callable[[Caller, R], A]) -> Callable[[Caller, R], A]:
    """Refuse the operation to agents, and keep what it says in its answer."""

    @functools.wraps(function)
    def carry_out(caller: Caller, request: R) -> A:
        if request.changes:
            refuse_under_agent(function.__name__.replace("_", "-"), caller.env)
        if any("\0" in value for value in astuple(request) if isinstance(value, str)):
            raise UsageError("a word of the request holds a null character")
        caller, notices = caller.recording()
        return replace(function(caller, request), notices=tuple(notices))

    return carry_out


class Outcome(Struct, frozen=True, kw_only=True):
    """What an interface without a terminal shows of a request: its exit code, and everything that was said."""

    code: Exit
    notices: tuple[str, ...]
    answer: Answer | None = None  #: None after an error, which is the last notice

    @property
    def why(self) -> str:
        return self.notices[-1] if self.notices else ""


def try_operation(function: Operation[R], caller: Caller, request: R) -> Outcome:
    """Carry out the operation; an error becomes an exit code and its sentence."""
    say = caller.say
    caller, said = replace(caller, warn=lambda text: say(f"warning: {text}")).recording()
    try:
        answer = function(caller, request)
    except (RunplanError, OSError) as error:
        code = error.exit if isinstance(error, RunplanError) else Exit.UNREACHABLE
        return Outcome(code=code, notices=(*said, plain(refused_by_system(error) or str(error))))
    code = answer.exit if isinstance(answer, Declined) else Exit.DONE
    return Outcome(code=code, notices=answer.notices, answer=answer)
