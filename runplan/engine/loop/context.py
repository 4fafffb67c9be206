"""The context of a command: a repository, its settings, its plans with their queue, and its journal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import DecodeError, field
from msgspec.structs import asdict, replace

from runplan import __version__
from runplan.adapters.configuration.load import LoadedSettings, environment, load_settings
from runplan.adapters.configuration.places import repository_file
from runplan.adapters.git import objects as trees
from runplan.adapters.git.command import ANY, Git, Stored
from runplan.adapters.git.remote import Remote
from runplan.adapters.git.repository import Repository, open_repository, require_target
from runplan.adapters.store.files import first_line, make_below, publish
from runplan.adapters.store.location import FleetLocation, Location, normalize_url
from runplan.adapters.store.outputs import Outputs
from runplan.adapters.store.protocol import Store, open_store
from runplan.domain import errors, names
from runplan.domain.decoding import convert, decode_json, to_json
from runplan.domain.plan.marks import ExecutionKind
from runplan.domain.run.events import RunStarted
from runplan.domain.run.rows import RunRow
from runplan.domain.settings.schema import FILES, Settings
from runplan.domain.standing.phases import PlanOutline
from runplan.domain.standing.queue import QueueEntry, order_queue
from runplan.domain.text import command, committing
from runplan.domain.times import iso_at


class RepositoryContext(Repository, frozen=True, kw_only=True):
    cwd: Path
    env: Mapping[str, str]
    settings: Settings
    pull: str = ""  #: slug of the plan whose pull request is meant
    fleet: FleetLocation | None = None  #: of the journal, if the user belongs to a fleet
    #: The one connection to a fleet's database, since each takes long to make.
    readers: list[Store] = field(default_factory=list)

    @property
    def state(self) -> Path:
        """The directory of runplan's files, in the common git directory, which `git clean` does not touch."""
        return self.common_dir / "runplan"

    @property
    def journal(self) -> Location:
        return self.fleet or self.state

    @property
    def local_target(self) -> str:
        return f"refs/heads/{self.settings.run.target}"

    @property
    def target(self) -> str:
        """The ref of the target: the remote-tracking branch for landings that push, or the plan's own branch."""
        run = self.settings.run
        branch_ref = f"refs/remotes/{run.remote}/{names.pull_branch(run.branch_prefix, self.pull)}"
        return branch_ref if self.pull and self.git.tip(branch_ref) else run.target_ref

    @property
    def is_on_branch(self) -> bool:
        return self.target != self.settings.run.target_ref

    @property
    def target_name(self) -> str:
        return self.target.removeprefix("refs/heads/").removeprefix("refs/remotes/")

    def with_landing(self, landing: str, *, target: str = "", remote: str = "") -> RepositoryContext:
        run = self.settings.run
        run = replace(run, landing=landing, target=target or run.target, remote=remote or run.remote)
        return replace(self, settings=replace(self.settings, run=run))

    def landing_like(self, run: RunStarted | RunRow) -> RepositoryContext:
        context = replace(self, pull=run.slug) if run.concludes else self
        return context.with_landing(run.landing, target=run.target, remote=run.remote)

    def for_run(self, started: RunStarted) -> RepositoryContext:
        context = replace(self, settings=started.settings) if started.settings else self
        return context.landing_like(started)

    def record_settings(self, asked: RunStarted) -> RunStarted:
        return replace(asked, settings=self.settings.of_project)

    def committed(self, commit: str = "") -> tuple[str, Stored] | None:
        tip = commit or self.git.tip(self.target)
        files = ((name, self.git.object(f"{tip}:{name}")) for name in FILES) if tip else ()
        return next(((name, blob) for name, blob in files if blob is not None and blob.kind == "blob"), None)

    def with_settings(self) -> RepositoryContext:
        return replace(self, settings=load_settings(self.root, env=self.env).settings)

    def with_committed_settings(self, commit: str = "") -> RepositoryContext:
        return replace(self, settings=self.committed_settings(commit).settings)

    def committed_settings(self, commit: str = "") -> LoadedSettings:
        file = self.committed(commit)
        return load_settings(self.root, env=self.env, committed=(file[0], file[1].content) if file else None)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.target, self.local_target)))

    def for_plan(self, plan: str) -> RepositoryContext:
        newest = self.store().get_newest_run(plan)
        return self.with_landing_of(newest) if newest is not None else self

    def with_landing_of(self, run: RunRow) -> RepositoryContext:
        there = self.landing_like(run)
        return there if there.target == self.target or self.git.tip(there.target) else self

    def tip(self) -> str:
        tip = self.git.tip(self.target)
        if tip is None:
            require_target(self, self.target)
            raise errors.Unreachable(f"{self.target} cannot be read; see: git fsck")
        return tip

    def open_remote(self) -> Remote:
        run = self.settings.run
        return Remote(self.git, name=run.remote, branch=run.target, common_dir=self.common_dir, caller=self.env)

    def fetch_landed(self, warn: Callable[[str], object]) -> None:
        """Fetch what hosts of a fleet have landed since the last call, or tell of which time the view is."""
        file = self.state / "fetched"
        if self.fleet is None or first_line(file) == (newest := self.store().get_newest_landing()):
            return
        remote = self.open_remote()
        pulls = f"{self.settings.run.branch_prefix}*"
        refs = (f"+{names.HEADS}{name}:refs/remotes/{remote.name}/{name}" for name in (remote.branch, pulls))
        try:
            remote.fetch_ref(*refs, prune=True)
            make_below(self.common_dir, self.state)
            publish(file, newest.encode(), sync=False)
        except errors.Unreachable as error:
            moment = f" at {iso_at(file.stat().st_mtime)}" if file.exists() else ""
            warn(f"{error}; plans are shown as of the last fetch{moment}")

    def store(self) -> Store:
        if self.fleet is not None and not self.readers:
            self.readers.append(open_store(self.fleet))
        return self.readers[0] if self.fleet else open_store(self.state, writable=False, missing_ok=True)

    def outputs(self, store: Store) -> Outputs:
        return Outputs(self.state / "dispatch", store.outputs)


@contextlib.contextmanager
def open_context(
    cwd: Path = Path(), *, env: Mapping[str, str] | None = None, warn: Callable[[str], None] | None = None
) -> Iterator[RepositoryContext]:
    """The repository around a directory, with its settings; with `warn` broken settings are a warning."""

    def read(root: Path, env: Mapping[str, str]) -> Settings:
        try:
            return load_settings(root, env=env).settings
        except errors.SettingsError as error:
            if warn is None:
                raise
            warn(f"{error}; using the default settings")
        with contextlib.suppress(errors.SettingsError):  # the user's are needed to find the journal
            return load_settings(root, env=env, committed=(FILES[0], b"")).settings
        return Settings()

    with context_at(cwd, environment() if env is None else env, read) as context:
        yield context


@contextlib.contextmanager
def context_at(
    cwd: Path, env: Mapping[str, str], settings: Callable[[Path, Mapping[str, str]], Settings]
) -> Iterator[RepositoryContext]:
    try:
        cwd = cwd.absolute()
    except FileNotFoundError:
        raise errors.RefusedEarly("the current directory is gone; go to the repository first") from None
    repository = open_repository(cwd, env=env)
    try:
        read = settings(repository.root, env)
        fleet = find_fleet(repository, read) if read.fleet.dsn else None
        yield RepositoryContext(**asdict(repository), cwd=cwd, env=env, settings=read, fleet=fleet)
    finally:
        repository.git.close()


def find_fleet(repository: Repository, settings: Settings) -> FleetLocation:
    url = normalize_url(remote_url(repository, settings))
    return FleetLocation(settings.fleet.dsn, url, output=settings.fleet.output)


def remote_url(repository: Repository, settings: Settings) -> str:
    url = repository.git.run("remote", "get-url", "--", settings.run.remote, ok=ANY).text
    return str(repository.root / url) if url.startswith(".") else url


def newest_run(context: RepositoryContext, word: str | None) -> tuple[Store, RunRow]:
    """The run of this id, or the newest run of the plan, or of all plans without a word; and the journal it is in."""
    store = context.store()
    if word is not None and (row := store.get_run(word)) is not None:
        return store, row
    path = plan_path(context, word) if word is not None else None
    rows = store.list_runs(path, limit=1)
    if not rows and any(queued.plan == path for queued in store.list_queued_commands()):
        see = command("runplan", "status", str(path))
        raise errors.NotFound(f"the run of {path} is queued and has not begun; see: {see}")
    if not rows:
        start = command("runplan", "start", path or "PLAN")
        raise errors.NotFound(f"no run of {path or 'any plan'} is recorded here; start one: {start}")
    return store, rows[0]


def plan_path(context: RepositoryContext, word: str) -> str:
    root = context.root
    named = plan_in(Path(os.path.normpath(context.cwd / word)))
    if os.path.isfile(named) or task_folder(named):  # noqa: PTH113 - False for a name that is too long
        checkout = next((top for top in (context.cwd, *context.cwd.parents) if (top / ".git").exists()), root)
        for top in (root, checkout):
            if named.is_relative_to(top):
                path = named.relative_to(top).as_posix()
                names.require_plain(path)
                return path
        raise errors.UsageError(f"{word} is not in this repository ({root})")
    ran = list[str]()
    active = list[str]()
    with contextlib.suppress(errors.Unreachable):  # a damaged journal does not matter for finding a plan
        store = context.store()
        ran = store.list_plans()
        active = store.list_active_plans()
    plans = known_plans(context, active)
    if os.path.isdir(named) and not any(names.is_named(word, plan) for plan in plans):  # noqa: PTH112
        raise errors.UsageError(f"{word} is a directory; name the plan file in it")
    plans = list(dict.fromkeys([*plans, *spec_plans(root)]))
    gone = [plan for plan in ran if plan not in plans]
    # The plan of an issue that another repository has taken is on its branch alone.
    path = f"{context.settings.paths.plans}/{PurePosixPath(word).name.removesuffix('.md')}.md"
    branch = names.pull_branch(context.settings.run.branch_prefix, names.slug(path))
    is_on_branch = context.git.object(f"refs/remotes/{context.settings.run.remote}/{branch}:{path}") is not None
    if is_on_branch and path not in (*plans, *gone):
        return path
    place = f", neither as a path nor under {context.settings.paths.plans}/"
    return names.find_plan(names.shown(word), plans, place=place, gone=gone)


def plan_in(path: Path) -> Path:
    """The plan of a spec folder, of a track of Conductor or of Backlog.md; any other path as it is."""
    file = path / ("plan.md" if path.parent.parts[-2:] == ("conductor", "tracks") else names.PLAN_FILE)
    is_spec = os.path.isfile(file)  # noqa: PTH113 - False for a name that is too long
    return file if is_spec else task_folder(path) or path


def task_folder(path: Path) -> Path | None:
    folder = path if path.name == "tasks" else path / "tasks"
    if not os.path.isdir(folder):  # noqa: PTH112 - False for a name that is too long
        return None
    is_known = (folder.parent / "config.yml").is_file() or any(folder.glob("*-[0-9]* - *.md"))
    return folder if is_known else None


def read_checkout(file: Path, path: str) -> bytes:
    if not file.is_dir():
        return file.read_bytes()
    return names.join_files({f"{path}/{task.name}": task.read_bytes() for task in file.glob("*.md")})


def describe_link(file: Path, path: str, verb: str) -> str:
    """Names a plan in the checkout that is a symbolic link, and the remedy; "" for any other file."""
    if not os.path.islink(file):  # noqa: PTH114 - False for a name that is too long
        return ""
    link = str(file.readlink())
    target = os.path.normpath(Path(path).parent / link)
    is_here = file.is_file() and not target.startswith(("/", ".."))
    remedy = f"name the file itself: {command('runplan', verb, target)}" if is_here else "replace the link by the file"
    return f"{path} is a symbolic link to {names.shown(link)}; {remedy}"


def plan_or_watch(context: RepositoryContext, word: str) -> str:
    if not word.startswith(names.WATCHES):
        return plan_path(context, word)
    watches = [plan for plan in context.store().list_active_plans() if plan.startswith(names.WATCHES)]
    if word not in watches:
        label = word.removeprefix(names.WATCH) or "LABEL"
        make = command("runplan", "watch-issues", "--label", label, "every", "10m")
        make = command("runplan", "work", "all") if word.startswith(names.QUEUE) else make
        there_are = f"there are: {', '.join(watches)}"
        raise errors.NotFound(f"{word}: no such watch; {there_are if watches else f'make one: {make}'}")
    return word


def known_plans(context: RepositoryContext, active: Iterable[str]) -> list[str]:
    directory = context.root / context.settings.paths.plans
    files = (path for ending in names.SUFFIXES for path in directory.rglob(f"*{ending}") if path.is_file())
    paths = {path.relative_to(context.root).as_posix() for path in files}
    paths = paths.union(plans_on_target(context), active)
    return sorted(path for path in paths if names.is_plain(path) and not path.startswith(names.WATCHES))


def spec_plans(root: Path) -> list[str]:
    places = (*(f"{folder}/*/{names.PLAN_FILE}" for folder in names.SPEC_FOLDERS), *names.PLAN_PLACES)
    files = (file for place in places for file in sorted(root.glob(place)) if file.is_file() or task_folder(file))
    return [file.relative_to(root).as_posix() for file in files]


def plans_on_target(context: RepositoryContext) -> dict[str, str]:
    top = context.git.object(f"{context.target}:{context.settings.paths.plans}")
    if top is None or top.kind != "tree":
        return {}
    files = trees.list_files(context.git, top.oid, f"{context.settings.paths.plans}/")
    return {path: entry.oid for path, entry in files.items() if path.endswith(names.SUFFIXES)}


def slug_of(context: RepositoryContext, plan: str) -> str:
    store = context.store()
    newest = store.get_newest_run(plan)
    if newest is not None and newest.slug:
        return newest.slug
    return names.plan_key(plan, [*known_plans(context, store.list_active_plans()), *spec_plans(context.root)])


def is_stored(content: bytes, blob: bytes) -> bool:
    """Whether git stores the content of a file so, but for line ends. Filters are not run: an agent may edit them."""
    return content.replace(b"\r\n", b"\n") == blob.replace(b"\r\n", b"\n")


def settings_note(context: RepositoryContext) -> str:
    file_here = repository_file(context.root)
    file = context.committed()
    name = file_here.relative_to(context.root).as_posix() if file_here is not None else ""
    if file is None:
        commit = committing(name, "Settings of runplan")
        used = f"the checkout's file is used. To commit it: {commit}"
        return f"{name} is not committed on {context.target_name}; {used}" if file_here is not None else ""
    committed, blob = file
    if file_here is not None and name == committed and is_stored(file_here.read_bytes(), blob.content):
        return ""
    used = f"the version of {context.target_name} ({context.tip()[:12]}) is used"
    if name == committed:
        used = f"{used}. To use yours: {committing(name, 'Settings of runplan')}"
    return f"{committed} in the checkout is not committed on {context.target_name}; {used}"


def read_outline(
    git: Git,
    blob: str,
    path: str,
    kept: tuple[str, str],
    new: list[tuple[str, str, str]],
    *,
    is_on_branch: bool = False,
) -> PlanOutline:
    """The outline that was stored for this blob; one that is made here is added to `new`."""
    stamp = f"{__version__} {blob}{' on its branch' if is_on_branch else ''}"
    known, outline = kept
    if known == stamp:
        with contextlib.suppress(DecodeError):  # text that is not valid Unicode
            return decode_json(outline, PlanOutline)
    text = trees.read_plan(git, blob, path)
    if text is None:
        raise errors.Unreachable(f"{path} cannot be read; see: git fsck")
    plan = parse_outline(text, path)
    if is_on_branch:  # it is not complete before the merge
        plan = replace(plan, status="active", complete=False)
    new.append((path, stamp, to_json(plan)))
    return plan


def parse_outline(text: bytes, path: str) -> PlanOutline:
    from runplan.domain.plan import model, tracker  # slow to import, and most plans are known

    try:
        plan = model.parse_plan(text, path=path)
    except errors.PlanUnreadable as error:
        return PlanOutline(error=str(error), is_page=isinstance(error, errors.NotAPlan))
    outline = convert(plan, PlanOutline, from_attributes=True)
    hindrances = [phase.status != "done" and tracker.describe_hindrance(plan, phase) for phase in plan.phases]
    phases = (replace(phase, hindrance=why or "") for phase, why in zip(outline.phases, hindrances, strict=True))
    executions = (phase.execution for phase in plan.phases)
    subplans = (execution.argument for execution in executions if execution.kind == ExecutionKind.PLAN)
    return replace(outline, phases=tuple(phases), subplans=tuple(subplans))


def read_queue(context: RepositoryContext, store: Store) -> Sequence[QueueEntry]:
    facts = store.read_plan_facts()
    blobs = plans_on_target(context)
    stored = {path: facts[path].outline if path in facts else ("", "") for path in blobs}
    outlines = {path: read_outline(context.git, blob, path, stored[path], []) for path, blob in blobs.items()}
    return order_queue(outlines, facts, store.list_places())
