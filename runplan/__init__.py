"""Works through a Markdown plan on its own, phase by phase, and lands what is proven."""

from typing import TYPE_CHECKING

__all__ = ["__version__", "open"]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from runplan.app.api import open_repository as open  # noqa: A004 - runplan.open, as gzip.open


def __getattr__(name: str) -> object:
    """`runplan.open`: the Python interface is imported when it is used, and not by every process of runplan."""
    if name == "open":
        from runplan.app.api import open_repository  # the shim of each agent imports this package

        return open_repository
    raise AttributeError(f"module 'runplan' has no attribute {name!r}")
