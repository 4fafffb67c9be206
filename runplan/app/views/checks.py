"""A plan file as `check` shows it, and the disks."""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from runplan.adapters.configuration.places import state_directory
from runplan.adapters.store.files import publish
from runplan.app.operations.model import Caller
from runplan.domain import names
from runplan.domain.errors import NotFound, RefusedEarly
from runplan.domain.plan.body import named_paths
from runplan.domain.plan.marks import PhaseSettings, Status
from runplan.domain.plan.model import Plan, other_way, parse_plan
from runplan.domain.plan.reading import Reading, Remark
from runplan.domain.plan.tracker import add_tracker
from runplan.domain.text import command
from runplan.engine.loop.context import describe_link, open_context, plan_in, plan_path, read_checkout, task_folder
from runplan.engine.loop.preflight import foresee_refusals, needed_commit
from runplan.hosts.daemon.state import Known

LOW = 20  #: a smaller part of a disk that is free is low


class PlanFile(Struct, frozen=True, kw_only=True):
    file: Path
    name: str  #: as it was named
    text: bytes
    plan: Plan
    readings: tuple[Reading, Reading] | None  #: where it can be read in two ways
    next: str = ""  #: the commands that start it; "" outside of a repository


def read_plan_file(caller: Caller, word: str, *, fix: bool = False) -> PlanFile:
    """The plan file, outside of a repository too; `fix` adds a tracker to one of bare sections, and says so."""
    file, name = _find_file(caller, word)
    if link := describe_link(file, name, "check"):
        raise (RefusedEarly if file.is_file() else NotFound)(link)
    text = read_checkout(file, name)
    if fix:
        fixed = add_tracker(text, path=name)
        if fixed != text:
            mode = file.stat().st_mode
            publish(file, fixed, sync=True)
            file.chmod(mode)
        caller.say(f"{name}: {'the plan has statuses already; nothing' if fixed == text else 'a tracker'} was added")
        text = fixed
    plan = parse_plan(text, path=name)
    start = command("runplan", "start", name)
    following = ""
    with suppress(RefusedEarly), open_context(file.parent, env=caller.env, warn=lambda _: None) as context:
        commit = needed_commit(context, plan_path(context, str(file)), name)
        following = f"{commit}; then: {start}" if commit else start
        plan = foresee_refusals(context, plan, context.tip())
    return PlanFile(file=file, name=name, text=text, plan=plan, readings=other_way(text, path=name), next=following)


def _find_file(caller: Caller, word: str) -> tuple[Path, str]:
    """The file as given, else the plan of this repository by that name."""
    named = plan_in(Path(word))
    file = caller.cwd / named
    if os.path.isfile(file) or os.path.islink(file) or task_folder(file):  # noqa: PTH113, PTH114 - a name may be long
        names.require_plain(named.name if named.is_absolute() else str(named))
        return file, str(named)
    try:
        with caller.open() as context:
            path = plan_path(context, word)
            file = context.root / path
            if not os.path.lexists(file):
                shown = f"a proposed plan is shown by: {command('runplan', 'diff', path)}"
                raise NotFound(f"{path} is not in the checkout; {shown}")
            return file, path
    except RefusedEarly as error:  # outside of a repository a plan is a file
        if os.path.isfile(caller.cwd / f"{word}.md"):  # noqa: PTH113 - likewise
            return _find_file(caller, f"{word}.md")
        raise NotFound(f"{names.shown(word)}: no such plan file; {error}") from None


class CheckedItem(Struct, frozen=True):
    id: str
    text: str
    line: int
    paths: tuple[str, ...]


class CheckedPhase(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    status: Status
    commit: str | None
    line: int
    depends: tuple[str, ...]
    soft: tuple[str, ...]
    touches: tuple[str, ...]
    allows: tuple[str, ...]
    execution: str
    items: tuple[CheckedItem, ...]
    sign_off: tuple[str, ...]
    blocker: str
    note: str
    host: tuple[str, ...]
    own: PhaseSettings  #: the lines Agent, Verifier, Model, Effort and Tests that it has


class CheckedReading(Struct, frozen=True):
    format: str
    read_as: str
    phases: int
    line: int


class CheckedPlan(Struct, frozen=True, kw_only=True):
    """A plan as `check --json` prints it."""

    plan: str
    title: str
    status: str | None
    complete: bool
    format: str
    read_as: str
    readings: tuple[CheckedReading, ...]  #: where it can be read in two ways
    issues: tuple[int, ...]
    phases: tuple[CheckedPhase, ...]
    warnings: tuple[Remark, ...]

    @property
    def can_start(self) -> bool:
        return not any(warning.is_error for warning in self.warnings)

    @property
    def open_phases(self) -> list[CheckedPhase]:
        return [phase for phase in self.phases if phase.status is not Status.DONE]


def view_plan_file(read: PlanFile) -> CheckedPlan:
    plan = read.plan
    phases = []
    for phase in plan.phases:
        fields = {name: getattr(phase, name) for name in CheckedPhase.__struct_fields__}
        items = tuple(CheckedItem(item.id, item.text, item.line, tuple(named_paths(item.text))) for item in phase.items)
        fields |= {"items": items, "commit": phase.commit or None, "execution": phase.execution.text}
        phases.append(CheckedPhase(**fields))
    ways = [CheckedReading(way.format, way.name, len(way.places), way.decided_by + 1) for way in read.readings or ()]
    return CheckedPlan(
        plan=plan.path,
        title=plan.title,
        status=plan.status or None,
        complete=plan.complete,
        format=plan.format,
        read_as=plan.read_as,
        readings=tuple(ways),
        issues=plan.issues,
        phases=tuple(phases),
        warnings=plan.remarks,
    )


def list_disks(env: Mapping[str, str], known: Sequence[Known]) -> list[tuple[str, int, int, bool]]:
    """Path, free and total bytes of the file systems of journals and state, each once, and whether space is low."""
    disks: dict[tuple[int, int], tuple[str, int, int, bool]] = {}
    for path in (state_directory(env), *(Path(repository.common) for repository in known)):
        try:
            usage = shutil.disk_usage(path)
        except OSError:  # unplugged, or not made yet
            continue
        disk = (str(path), usage.free, usage.total, usage.free < usage.total / LOW)
        disks.setdefault((path.stat().st_dev, usage.total), disk)
    return list(disks.values())
