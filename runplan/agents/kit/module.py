"""What a module in agents/clis is made of, and what stands in for the parts that it may leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from runplan.agents.kit.task import first_set

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

    from runplan.agents.kit.about import About
    from runplan.agents.kit.task import Task
    from runplan.run.usage import AgentEvent
    from runplan.settings.schema import AgentTable


class Account(Struct, frozen=True, kw_only=True):
    """The login, the address and the model that an agent will use, and who pays."""

    login: str
    address: str
    model: str
    bill: str
    lacks: str = ""  #: why the agent cannot work; "" when nothing is missing
    remedy: str = ""  #: the fix for that; "": set a model

    @property
    def words(self) -> str:
        return f"login {self.login}; address {self.address}; model {self.model}; billed to {self.bill}"


def model_remedy(agent: str) -> str:
    return f'set model = "..." under [agents.{agent}] in runplan.toml'


class AgentModule(Protocol):
    """One kind of agent, with nothing left out."""

    @property
    def ABOUT(self) -> About: ...  # noqa: N802 - a constant of the module

    def launch(self, table: AgentTable, task: Task) -> tuple[str, ...]:
        """The words its program is started with."""
        ...

    def read(self, line: bytes) -> tuple[AgentEvent, ...]:
        """What a line of its output tells."""
        ...

    def keys(self, table: AgentTable) -> tuple[str, ...]:
        """The variables in which the keys are that it can use; left out: those of ABOUT, whatever the model."""
        ...

    def environment(
        self, table: AgentTable, task: Task, caller: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """The variables it needs, and the names of the caller's that it may see; left out: none."""
        ...

    def prepare(self, table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:
        """Put the files in place that the environment speaks of; comes with that, or not at all."""
        ...

    def configured(self, caller: Mapping[str, str]) -> bool:
        """Whether its user has chosen a login or a provider in its own configuration; left out: never."""
        ...

    def account(self, table: AgentTable, caller: Mapping[str, str], *, own: bool) -> Account:
        """What it will use, `own`: by its user's configuration; left out: by the variables alone."""
        ...

    def logins(self, caller: Mapping[str, str]) -> tuple[Path, ...]:
        """The files of which one is there when its user has signed in; left out: that is not known."""
        ...

    def finish(self, directory: Path) -> tuple[AgentEvent, ...]:
        """What it tells in files when it has ended; left out: nothing."""
        ...


#: What no module can leave out.
REQUIRED = ("ABOUT", "launch", "read")
OPTIONAL = ("keys", "environment", "prepare", "configured", "logins", "account", "finish")


def whole(module: ModuleType) -> AgentModule:
    """The module with what it leaves out; refused when what it has cannot be used."""
    has = {name: value for name, value in vars(module).items() if name in (*REQUIRED, *OPTIONAL)}
    if missing := [name for name in REQUIRED if name not in has]:
        raise TypeError(f"{module.__name__} has no {' and no '.join(missing)}; see CONTRIBUTING.md, Add an agent")
    if ("environment" in has) != ("prepare" in has):
        raise TypeError(f"{module.__name__} has one of environment and prepare; they come together or not at all")
    made: Any = _Defaults()
    vars(made).update(has)
    whole: AgentModule = made
    return whole


def by_variables(
    about: About, keys: tuple[str, ...], table: AgentTable, caller: Mapping[str, str], *, own: bool
) -> Account:
    """What an agent will use as far as variables tell; `own`: its user's configuration goes before them."""
    key = "" if own else first_set(caller, *keys)
    address, model = first_set(caller, *about.addresses), first_set(caller, *about.models)
    return Account(
        login=key or ("of its own configuration" if own else "of its own"),
        address="of its own configuration" if own else caller.get(address) or "its default",
        model=table.model or caller.get(model) or ("of its own configuration" if own else "its default"),
        bill=f"the account of {key}" if key else "the account of that login",
    )


class _Defaults:
    """What stands in; a part that the module has lies before it."""

    ABOUT: About

    def keys(self, _table: AgentTable) -> tuple[str, ...]:
        return self.ABOUT.keys

    def environment(
        self, _table: AgentTable, _task: Task, _caller: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        return {}, ()

    def prepare(self, _table: AgentTable, _task: Task, _caller: Mapping[str, str]) -> None:
        pass

    def configured(self, _caller: Mapping[str, str]) -> bool:
        return False

    def account(self, table: AgentTable, caller: Mapping[str, str], *, own: bool) -> Account:
        return by_variables(self.ABOUT, self.keys(table), table, caller, own=own and self.configured(caller))

    def logins(self, _caller: Mapping[str, str]) -> tuple[Path, ...]:
        return ()

    def finish(self, _directory: Path) -> tuple[AgentEvent, ...]:
        return ()
