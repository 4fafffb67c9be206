"""What a process sees and may write: a view, by role, and the base of the engines that make one.

Everything is read-only but the places that a view names. The home, `/tmp`, `/var/tmp`, `/dev/shm` and `/run` are its
own. The entries of the user's home are readable there, except for secrets, which are absent, and for state and caches,
which are private.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from runplan.domain.settings.schema import Network


class HomeUse(Struct, frozen=True):
    """What a program or a project needs of the home besides the common entries; paths are absolute or from the home."""

    private: tuple[str, ...] = ()  #: state and caches; those of an agent's program have no trace of set-up for a judge
    readable: tuple[str, ...] = ()  #: also below a private entry
    shared: tuple[str, ...] = ()  #: files that it writes back, such as a login that it refreshes
    copied: tuple[str, ...] = ()  #: files that it replaces, of which it gets a private copy
    mounts: tuple[str, ...] = ()  #: further places, sockets and devices

    def __or__(self, other: "HomeUse") -> "HomeUse":
        return HomeUse(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class View(Struct, frozen=True, kw_only=True):
    cwd: Path
    dispatch: str = ""  #: whose process it is; "" for a script of runplan
    writable: tuple[Path, ...] = ()  #: existing directories, at their own paths
    layers: tuple[Path, ...] = ()  #: existing directories on which it works; what it changes there is dropped
    is_copy: bool = False  #: the layers are copies, also where the kernel could do without
    home: Path | None = None  #: directory of its private places, kept for the run; None: they are gone at its end
    drops_home: bool = False  #: what it changes in the home is dropped
    is_judge: bool = False  #: it has no settings, instructions and programs that set-up left in the home
    scratch: Path | None = None  #: with a folder for each place of temporary files; None: they are in memory
    uses: HomeUse = HomeUse()
    network: Network = "all"


class Places(Struct, frozen=True):
    homes: Path = Path()  #: directory of the private homes, one for each worktree
    needed: tuple[Path, ...] = ()  #: readable wherever they lie: repository, checkout, worktrees
    shown: Mapping[Path, Path] = {}  #: files that hold a secret, with the copy without it that is shown instead
    image: str = ""  #: the id of the image of containers
    state: Path | None = None  #: runplan's own directory, whose journal and locks are absent


class Obstacle(Struct, frozen=True):
    problem: str
    remedy: str


class Sandbox(Struct, frozen=True):
    """An engine that makes views. This one makes none: the process sees and may write what the user may."""

    def wrap(self, command: Sequence[str], view: View) -> tuple[str, ...]:  # noqa: ARG002
        return tuple(command)

    def end(self, dispatch: str) -> tuple[str, ...]:  # noqa: ARG002
        """The command that ends the views of a dispatch when the processes below its shim are gone; () for none."""
        return ()

    def remove_leftovers(self, list_live: Callable[[], Collection[str]]) -> None:
        """Remove what is left of views of dispatches that are not live, and of scripts whose runplan has ended."""
