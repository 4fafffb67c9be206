"""runplan fleet: set up the database of a fleet."""

from __future__ import annotations

import argparse
from pathlib import Path

from runplan.engine.context import open_context, refuse_under_agent, remote_url
from runplan.errors import RefusedEarly
from runplan.settings.load import environment, load_user
from runplan.settings.places import user_file
from runplan.store.location import hide_password
from runplan.store.postgres import initialize, list_fleet


def run_fleet(args: argparse.Namespace) -> None:
    refuse_under_agent(f"fleet {args.action}")
    dsn = require_dsn()
    initialize(dsn, [_whole_url(url) for url in args.repository] if args.repository else [_remote_here()])
    print(f"The database {hide_password(dsn)} is set up, with the repositories:")
    print("".join(f"  {repository.url}\n" for repository in list_fleet(dsn)), end="")


def require_dsn() -> str:
    """The address of the fleet's database; refused without one."""
    env = environment()
    if dsn := load_user(env).fleet.dsn:
        return dsn
    raise RefusedEarly(f"fleet.dsn is not set; set it in {user_file(env)} or RUNPLAN_FLEET_DSN, to postgresql://…")


def _whole_url(url: str) -> str:
    return str(Path(url).resolve()) if Path(url).exists() else url


def _remote_here() -> str:
    """The URL of the remote of the repository around the current directory."""
    with open_context() as context:
        if url := remote_url(context.repository, context.settings):
            return url
        remote = context.settings.run.remote
    raise RefusedEarly(f"there is no remote {remote} here; name the repository: runplan fleet init --repository URL")
