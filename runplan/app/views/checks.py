"""What `check`, `doctor` and `report` print, as data; the daemon and the disks."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from runplan.adapters.configuration.places import socket_path, state_directory
from runplan.app.health import Check, examine
from runplan.app.operations.model import Caller
from runplan.app.views.commands import run_command
from runplan.app.views.inspection import read_short_diffs
from runplan.app.views.repositories import open_known
from runplan.domain.decoding import convert
from runplan.domain.errors import RunplanError, error_with
from runplan.domain.plan.reading import Remark
from runplan.domain.times import iso
from runplan.engine.report.html import commits_in
from runplan.hosts.daemon.client import Client
from runplan.hosts.daemon.protocol import Hello
from runplan.hosts.daemon.state import Known

T = TypeVar("T")
DAEMON_S = 2.0  #: for the answer of the daemon


# --- check ------------------------------------------------------------------------------------------------


class CheckedPlan(Struct, frozen=True, kw_only=True):
    """A plan as `check` reads it; one that cannot be read has an error and no phases."""

    title: str = ""
    read_as: str = ""
    phases: tuple[dict[str, Any], ...] = ()
    warnings: tuple[Remark, ...] = ()
    readings: tuple[dict[str, Any], ...] = ()  #: where it can be read in two ways
    error: str = ""

    @property
    def can_start(self) -> bool:
        return not self.error and not any(warning.is_error for warning in self.warnings)

    @property
    def open_phases(self) -> list[dict[str, Any]]:
        return [phase for phase in self.phases if phase["status"] != "done"]


def check_plan(known: Known, plan: str, env: Mapping[str, str]) -> CheckedPlan:
    """Run `check` on a plan of the checkout."""
    result = run_command(["check", "--json", "--", plan], cwd=Path(known.root), env=env)
    return _read_json(result.output, CheckedPlan) or CheckedPlan(error=result.last_line or "The plan cannot be read.")


# --- doctor -----------------------------------------------------------------------------------------------


class Examination(Struct, frozen=True, kw_only=True):
    """What `doctor` says about a repository."""

    checks: tuple[Check, ...]
    made: str  #: UTC ISO-8601
    took_s: float
    error: str = ""


def examine_repository(known: Known, env: Mapping[str, str]) -> Examination:
    """What `doctor` says; it takes seconds where agents are asked for their versions."""
    made = iso(datetime.now(UTC))
    began = time.monotonic()
    checks: tuple[Check, ...] = ()
    problem = ""
    try:
        checks = tuple(examine(Caller(cwd=Path(known.root), env=env)))
    except RunplanError as error:
        problem = str(error)
    return Examination(checks=checks, made=made, took_s=time.monotonic() - began, error=problem)


class Disk(Struct, frozen=True, kw_only=True):
    path: str
    free: int  #: bytes
    total: int

    @property
    def is_low(self) -> bool:
        return self.free < self.total / 20


def list_disks(env: Mapping[str, str], known: Sequence[Known]) -> list[Disk]:
    """The file systems of the journals and of the state directory, each once."""
    disks: dict[tuple[int, int], Disk] = {}
    for path in (state_directory(env), *(Path(repository.common) for repository in known)):
        try:
            usage = shutil.disk_usage(path)
        except OSError:  # unplugged, or not made yet
            continue
        disks.setdefault((path.stat().st_dev, usage.total), Disk(path=str(path), free=usage.free, total=usage.total))
    return list(disks.values())


def ask_daemon(env: Mapping[str, str]) -> Hello | str:
    """The greeting of the daemon, or why there is none."""
    try:
        with Client(socket_path(env), answer_s=DAEMON_S) as client:
            return client.hello
    except RunplanError as error:
        return str(error)


# --- report -----------------------------------------------------------------------------------------------


def read_report(known: Known, plan: str, env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The report as Markdown, and the diffs of the commits that it lists, by their abbreviated ids."""
    markdown = _read_markdown(known, ["report", "--", plan], env)
    with open_known(known, warn=lambda _: None) as context:
        return markdown, read_short_diffs(context, commits_in(markdown))


def read_news(known: Known, since: str, env: Mapping[str, str]) -> str:
    """What happened in all repositories since a moment, as Markdown."""
    return _read_markdown(known, ["report", f"--since={since}"], env)


def _read_markdown(known: Known, words: Sequence[str], env: Mapping[str, str]) -> str:
    result = run_command(words, cwd=Path(known.root), env=env)
    if result.code:
        raise error_with(result.last_line, result.code)
    return result.output


def _read_json(text: str, type_: type[T]) -> T | None:
    """The output of a command; None where it printed no such data."""
    # Not msgspec.json: a text need not be valid Unicode.
    try:
        data: Any = json.loads(text)
        return convert(data, type_)
    except (json.JSONDecodeError, msgspec.ValidationError):
        return None
