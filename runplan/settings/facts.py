"""What was found around a repository, for `init` and `doctor`: plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from runplan.checks.testinfra import Infrastructure
    from runplan.gitfacts import Identity

#: The roles of the settings whose agents a run may send; any may be empty but the first two.
SENT = ("implementer", "verifier", "fallback")


class Facts(Struct, frozen=True, kw_only=True):
    """A repository and the machine it lies on."""

    root: str  #: the main checkout
    git_version: tuple[int, ...]
    branches: tuple[str, ...]  #: short names; none while there is no commit
    default_branch: str  #: what the remote calls its own, else main, master or the current one; "" for none
    identity: Identity | None
    signs: bool  #: commit.gpgsign
    remotes: tuple[str, ...]
    known: tuple[str, ...]  #: the agents that can be looked for, in the order they are suggested
    installed: tuple[str, ...]  #: of these, those whose program is on PATH
    tests: Infrastructure

    @property
    def empty(self) -> bool:
        return not self.branches


class Place(Struct, frozen=True, kw_only=True):
    """The directory worktrees are made in."""

    path: str
    writable: bool


class Account(Struct, frozen=True, kw_only=True):
    """What an agent will use: its login, the address it asks, its model, and who pays."""

    login: str
    address: str
    model: str
    bill: str
    lacks: str = ""  #: why it could not work; "" when nothing is missing
    remedy: str = ""  #: what helps then; "": a model

    @property
    def words(self) -> str:
        return f"login {self.login}; address {self.address}; model {self.model}; billed to {self.bill}"


def model_remedy(agent: str) -> str:
    return f'set model = "..." under [agents.{agent}] in runplan.toml'


class Cast(Struct, frozen=True, kw_only=True):
    """Who plays a role, and whether their program is there."""

    role: str
    agent: str
    program: str  #: the program or script file that was looked for
    found: bool
    version: str = ""  #: what the program says; "" when it was not asked or said nothing
    unwatched: bool = False  #: nobody could tell what it costs
    account: Account | None = None  #: None for a command of the user's own
    file: bool = False  #: what was looked for is a file of the project's, not a program
    lacks: str = ""  #: why it could not reach its provider: no key and no login; "" where that is not known


class Bench(Struct, frozen=True, kw_only=True):
    """What the test command finds in a fresh worktree; "" and None where nothing is missing."""

    missing: str = ""  #: the file that it reads
    program: str = ""  #: the program that it calls
    needs: tuple[str, str] | None = None  #: what only run.setup makes, and a command for it
