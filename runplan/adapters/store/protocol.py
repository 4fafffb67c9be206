"""Opens the store of a repository."""

from importlib import import_module
from pathlib import Path
from typing import Any

from runplan.adapters.store.location import FleetLocation, Location
from runplan.adapters.store.sql import Store
from runplan.adapters.store.sqlite import JOURNAL, SqliteStore
from runplan.domain.errors import RefusedEarly

__all__ = ["Store", "list_store_files", "load_postgres", "open_store", "store_exists"]


def open_store(place: Location, *, writable: bool = True, missing_ok: bool = False, may_create: bool = True) -> Store:
    """Open the store; a writer that `may_create` makes an absent one. With `missing_ok` it reads as empty."""
    if isinstance(place, FleetLocation):
        store: Store = load_postgres().PostgresStore(place)
        return store
    return SqliteStore(place, writable=writable, missing_ok=missing_ok, may_create=may_create)


def load_postgres() -> Any:
    """The module for the database of a fleet, which needs the extra `fleet`."""
    try:
        return import_module("runplan.adapters.store.postgres")
    except ModuleNotFoundError as error:
        why = f"fleet.dsn is set, and a fleet needs the module {error.name}"
        raise RefusedEarly(f"{why}; install it: pip install 'runplan[fleet]'") from None


def store_exists(location: Location) -> bool:
    return isinstance(location, FleetLocation) or (location / JOURNAL).exists()


def list_store_files(location: Location) -> list[Path]:
    """The files that change with the store; they need not exist."""
    return [] if isinstance(location, FleetLocation) else [location / JOURNAL, location / f"{JOURNAL}-wal"]
