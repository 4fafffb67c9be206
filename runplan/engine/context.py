"""The context of a command: the repository around a directory, its settings, its plans, its journal.

Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan import names
from runplan.errors import RefusedEarly, SettingsError, Unreachable, UsageError
from runplan.git.command import borrowing
from runplan.git.repository import open_repository, require_target
from runplan.landing import modes
from runplan.settings.load import environment, load, load_committed, load_lenient, recorded
from runplan.settings.places import repository_file
from runplan.settings.schema import FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runplan.git.repository import Repository
    from runplan.run.events import RunStarted
    from runplan.settings.load import LoadedSettings
    from runplan.settings.schema import Settings
    from runplan.store.sqlite import Store


class Committed(Struct, frozen=True, kw_only=True):
    """A settings file on the target."""

    name: str
    oid: str
    content: bytes
    tip: str  #: the commit it is from


class RepositoryContext(Struct, frozen=True, kw_only=True):
    """A repository, and how it is set up for a caller or a run."""

    cwd: Path
    env: Mapping[str, str]
    repository: Repository
    settings: Settings

    @property
    def state(self) -> Path:
        """Where the journal lives: in the common git directory, which `git clean` cannot reach."""
        return self.repository.common_dir / "runplan"

    @property
    def local_target(self) -> str:
        return f"refs/heads/{self.settings.run.target}"

    @property
    def target(self) -> str:
        """The ref that shows where the target stands: of the remote, for landings that push."""
        return modes.target_ref(self.settings.run)

    @property
    def target_name(self) -> str:
        """The target as people call it: main, or origin/main."""
        return self.target.removeprefix("refs/heads/").removeprefix("refs/remotes/")

    def towards(self, landing: str, *, target: str = "", remote: str = "") -> RepositoryContext:
        """The same place, seen by somebody who lands this way, and on another branch or remote where one is named."""
        run = self.settings.run
        asked = (landing, target or run.target, remote or run.remote)
        if asked == (run.landing, run.target, run.remote):
            return self
        from msgspec.structs import replace

        landing, target, remote = asked
        there = replace(run, landing=landing, target=target, remote=remote)
        return replace(self, settings=replace(self.settings, run=there))

    def for_run(self, started: RunStarted) -> RepositoryContext:
        """The same place, seen by that run: its settings, and where it lands, were fixed when it started."""
        at = self._set(recorded(started.settings)) if started.settings else self
        return at.towards(started.landing, target=started.target, remote=started.remote)

    def _set(self, settings: Settings) -> RepositoryContext:
        from msgspec.structs import replace

        return replace(self, settings=settings)

    def committed(self) -> Committed | None:
        """The repository's settings file on the target; None where it has none."""
        git = self.repository.git
        tip = git.tip(self.target) or ""
        for name in FILES if tip else ():
            if (found := git.object(f"{tip}:{self._followed(tip, name)}")) is not None and found.kind == "blob":
                return Committed(name=name, oid=found.oid, content=found.content, tip=tip)
        return None

    def _followed(self, tip: str, name: str) -> str:
        """The path of the settings file in that commit: `name`, or the regular file that a link of this name means."""
        from runplan.git import objects as trees

        git = self.repository.git
        tree = git.object(f"{tip}^{{tree}}")
        where, entry = trees.find(git, tree.oid, name) if tree is not None else ("", None)
        if tree is None or entry is None or where != name or entry.mode != trees.SYMLINK:
            return name
        link = git.object(entry.oid)
        to = os.fsdecode(link.content) if link is not None else ""
        path = os.path.normpath(os.path.join(os.path.dirname(name), to))  # noqa: PTH120 - a path in the commit
        reached, found = trees.find(git, tree.oid, path)
        if reached == path and found is not None and found.mode not in (trees.TREE, trees.SYMLINK, trees.SUBMODULE):
            return path
        link_text = f"{name} on {self.target_name} is a symbolic link to {names.shown(to)}"
        raise SettingsError(
            f"{link_text}, which is no regular file of the repository; commit the file itself as {name}"
        )

    def with_settings(self) -> RepositoryContext:
        """The same place with the settings of the checkout."""
        return self._set(load(self.repository.root, env=self.env, flags={}).settings)

    def with_committed_settings(self) -> RepositoryContext:
        """The same place with the settings of the target's tip; a file that was never committed is taken as it is."""
        return self._set(self.settled().settings)

    def settled(self) -> LoadedSettings:
        """The settings of the target's tip, each with its origin."""
        file = self.committed()
        if file is None:
            return load(self.repository.root, env=self.env, flags={})
        return load_committed(file.name, file.content, env=self.env)

    @property
    def targets(self) -> tuple[str, ...]:
        """Where landed work can be found: the target, and the local branch that follows it.

        Without landings that push, what was last seen of a remote says nothing: it may be long gone there.
        """
        return tuple(dict.fromkeys((self.target, self.local_target)))

    def diff(self, old: str, new: str) -> bytes:
        """What a commit changes, as the user's git shows it; `new` may not be in the user's repository yet."""
        objects = borrowing(self.state / "tool.git" / "objects")
        return self.repository.git.run("diff", "--stat", "--patch", old, new, env=objects).out

    @property
    def mirrored(self) -> tuple[str, str]:
        """The refs of the user's repository that agents see."""
        run = self.settings.run
        return self.local_target, f"refs/remotes/{run.remote}/{run.target}"

    def for_plan(self, plan: str, store: Store | None = None) -> RepositoryContext:
        """The same place, seen by the plan's newest run, while the branch it lands on is there."""
        store = store or self.store()
        newest = store.newest(plan) if store else None
        asked = store.started(newest.id) if store and newest else {}
        if not asked:
            return self
        there = self.towards(asked["landing"], target=asked["target"], remote=asked["remote"])
        return there if there is self or self.repository.git.tip(there.target) else self

    def tip(self) -> str:
        tip = self.repository.git.tip(self.target)
        if tip is None:
            require_target(self.repository, self.target)
            raise Unreachable(f"{self.target} cannot be read; see: git fsck")
        return tip

    def store(self) -> Store | None:
        """The journal for reading; None when nothing was ever run here."""
        from runplan.store.sqlite import Store

        return Store(self.state, writable=False) if Store.exists(self.state) else None


@contextlib.contextmanager
def open_context(
    *, flags: Mapping[str, object] | None = None, warn: Callable[[str], None] | None = None
) -> Iterator[RepositoryContext]:
    """The repository around the current directory, with its settings.

    With `warn` broken settings are only warned of, for those who look at runs and stop them.
    """

    def read(root: Path, env: Mapping[str, str]) -> Settings:
        return (
            load(root, env=env, flags=flags or {}).settings if warn is None else load_lenient(root, env=env, warn=warn)
        )

    with context_at(Path.cwd(), environment(), read) as at:
        yield at


@contextlib.contextmanager
def context_at(
    cwd: Path, env: Mapping[str, str], settings: Callable[[Path, Mapping[str, str]], Settings]
) -> Iterator[RepositoryContext]:
    """The repository around a directory, as somebody with this environment sees it."""
    repository = open_repository(cwd, env=env)
    try:
        yield RepositoryContext(cwd=cwd, env=env, repository=repository, settings=settings(repository.root, env))
    finally:
        repository.git.close()


def refuse_under_agent(verb: str) -> None:
    """An agent must not start, approve or stop anything."""
    if environment().get("RUNPLAN_AGENT"):
        raise RefusedEarly(f"{verb} does not run inside an agent (RUNPLAN_AGENT is set)")
    from runplan.processes import agent_above

    if agent := agent_above(os.getpid()):
        raise RefusedEarly(f"{verb} does not run inside an agent ({agent})")


# --- plans --------------------------------------------------------------------------------------------


def plan_path(at: RepositoryContext, word: str) -> str:
    """The repository-relative path of the plan that `word` means."""
    root = at.repository.root
    named = Path(os.path.normpath(at.cwd / word))
    if os.path.isfile(named):  # noqa: PTH113 - a name too long for a file is answered, not raised
        for top in (root, _checkout_top(at)):
            if named.is_relative_to(top):
                path = named.relative_to(top).as_posix()
                names.require_plain(path)
                return path
        raise UsageError(f"{word} is not in this repository ({root})")
    from runplan.plan.ids import find_plan, is_named

    store = _readable(at)
    plans = known_plans(at, store)
    if os.path.isdir(named) and not any(is_named(word, plan) for plan in plans):  # noqa: PTH112
        raise UsageError(f"{word} is a directory; name the plan file in it")
    gone = [plan for plan in _ever_run(store) if plan not in plans]
    return find_plan(names.shown(word), plans, place=at.settings.paths.plans, gone=gone)


def _checkout_top(at: RepositoryContext) -> Path:
    return next((top for top in (at.cwd, *at.cwd.parents) if (top / ".git").exists()), at.repository.root)


def known_plans(at: RepositoryContext, store: Store | None) -> list[str]:
    """Every Markdown file under the plans directory, in the checkout or on the target, and what is worked or scheduled.

    The file of a plan may be taken away while its run goes on: that has to be found to be stopped. A file whose name
    is not plain text is no plan.
    """
    place = at.settings.paths.plans
    directory = at.repository.root / place
    found = {path.relative_to(at.repository.root).as_posix() for path in directory.rglob("*.md") if path.is_file()}
    found = found.union(_plans_on_target(at, place), _plans_on_record(store))
    return sorted(path for path in found if names.is_plain(path))


def shown_plans(at: RepositoryContext, store: Store | None) -> list[str]:
    """The same and every plan that has ever been run, though its file may be gone."""
    return sorted({*known_plans(at, store), *_ever_run(store)})


def _ever_run(store: Store | None) -> list[str]:
    return [str(plan) for (plan,) in store.query("SELECT DISTINCT plan FROM runs ORDER BY plan")] if store else []


def _readable(at: RepositoryContext) -> Store | None:
    """The journal, unless it is damaged: who only means a plan need not hear of that."""
    with contextlib.suppress(Unreachable):
        return at.store()
    return None


def _plans_on_record(store: Store | None) -> Iterator[str]:
    if store is None:
        return
    from runplan.store.schedules import Schedules

    yield from (row.plan for row in store.unfinished())
    yield from (row.plan for row in Schedules(store).all())


def scheduled(at: RepositoryContext) -> list[str]:
    """The plans of this repository that have a schedule."""
    store = at.store()
    if store is None:
        return []
    from runplan.store.schedules import Schedules

    with contextlib.closing(store):
        return [row.plan for row in Schedules(store).all()]


def kept_plans(at: RepositoryContext) -> list[str]:
    """The plans that have a schedule, an unfinished run, or a command that waits: it may begin one."""
    store = at.store()
    if store is None:
        return []
    from runplan.store.commands import Commands

    with contextlib.closing(store):
        queued = [command.plan for command in Commands(store).queued()]
        return list(dict.fromkeys([*_plans_on_record(store), *queued]))


def is_kept(at: RepositoryContext, plan: str) -> bool:
    """Whether the daemon has a schedule of the plan, or a run of it that has not ended."""
    store = at.store()
    if store is None:
        return False
    with contextlib.closing(store):
        return plan in _plans_on_record(store) and (plan in scheduled(at) or store.is_daemons(plan))


def _plans_on_target(at: RepositoryContext, place: str) -> Iterator[str]:
    from runplan.git import objects as trees

    git = at.repository.git
    found = git.object(f"{at.target}:{place}")
    if found is None or found.kind != "tree":
        return
    waiting = [(place, found.oid)]
    while waiting:
        prefix, tree = waiting.pop()
        for name, entry in trees.entries(git, tree).items():
            if entry.mode == trees.TREE:
                waiting.append((f"{prefix}/{name}", entry.oid))
            elif name.endswith(".md"):
                yield f"{prefix}/{name}"


def slug_of(at: RepositoryContext, plan: str) -> str:
    """The name of the plan in branch, worktree and report; its first run fixes it."""
    store = at.store()
    newest = store.newest(plan) if store else None
    if store is not None and newest is not None:
        return str(store.started(newest.id)["slug"])
    return names.plan_key(plan, known_plans(at, store))


def in_checkout(at: RepositoryContext, path: str, blob: bytes | None) -> str:
    """Whether the plan in the main checkout is the committed one: same, differs or absent."""
    try:
        content = (at.repository.root / path).read_bytes()
    except FileNotFoundError:
        return "absent"
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory; name the plan file in it") from None
    if blob is None or content == blob:
        return "same" if blob is not None else "differs"
    # Line-end conversion and other filters make the file differ from what is stored, and rightly so.
    git = at.repository.git
    written = _stored_as(at, path, content)
    # A checkout that is merely behind the remote, or stands on another branch, holds what it has committed itself.
    stored = (git.object(f"{ref}:{path}") for ref in (at.target, at.local_target, "HEAD"))
    return "same" if any(one is not None and one.oid == written for one in stored) else "differs"


def _stored_as(at: RepositoryContext, path: str, content: bytes) -> str:
    """The id that git would give a file of the checkout."""
    return at.repository.git.run("hash-object", f"--path={path}", "--stdin", stdin=content).text


def settings_note(at: RepositoryContext) -> str:
    """Which version of the settings file a start uses, where the checkout has another; "" where it has the same."""
    own, file = repository_file(at.repository.root), at.committed()
    name = own.relative_to(at.repository.root).as_posix() if own is not None else ""
    if file is None and own is not None:
        from runplan.text import committing

        commit = committing(name, "Settings of runplan")
        return f"{name} is not committed on {at.target_name}; the checkout's file is used. To commit it: {commit}"
    if file is None or (own is not None and _is_stored(at, own, name, file)):
        return ""
    used = f"the version of {at.target_name} ({file.tip[:12]}) is used"
    if own is None:
        return f"{file.name} is missing in the checkout; {used}"
    return f"{name} in the checkout is not committed on {at.target_name}; {used}"


def _is_stored(at: RepositoryContext, own: Path, name: str, file: Committed) -> bool:
    content = own.read_bytes()
    return name == file.name and (content == file.content or _stored_as(at, name, content) == file.oid)
