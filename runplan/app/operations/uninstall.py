"""Removes what runplan left in a repository and in the home; work that did not land stays, unless it may go."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from runplan import __version__
from runplan.adapters.configuration.places import remove_unused_root, state_directory, user_file, worktree_root
from runplan.adapters.git.command import ANY
from runplan.adapters.store.files import is_held, remove_directory
from runplan.app.machine import change_service, control_daemon
from runplan.app.operations.model import Caller
from runplan.app.operations.upkeep import gc
from runplan.domain.errors import RefusedEarly, RunplanError
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.names import HEADS, PARKED
from runplan.domain.settings.schema import FILES
from runplan.domain.text import command
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.leftovers import remove_built_images
from runplan.engine.loop.rehearsal import LOCK
from runplan.hosts.daemon import client
from runplan.hosts.daemon.service import find_installed
from runplan.hosts.daemon.state import REPOSITORIES, Known, hold_lock, list_repositories, read_holder


def uninstall(caller: Caller, *, dry_run: bool, delete_work: bool) -> list[Removed | Kept]:
    """Remove the state of this repository, and that of the home when no other repository uses it.

    Outside of a repository only the home is looked at. Refused while a run or a schedule needs the state.
    """
    if not dry_run:
        caller.refuse_to_agents("uninstall")
    if caller.user_settings.fleet.dsn:
        raise RefusedEarly("a fleet works on your plans; take fleet.dsn out of your settings first")
    state = state_directory(caller.env)
    here = None
    try:
        with caller.open(lenient=True) as context:
            here = Known(common=str(context.common_dir), root=str(context.root))
            _require_no_work(context)
    except RunplanError as error:
        if here is not None and not dry_run:
            raise
        if dry_run:
            home = f"{error}; only the files in the home are looked at"
            caller.say(home if here is None else f"uninstall would be refused: {error}")
    others = [known for known in list_repositories(state) if here is None or known.common != here.common]
    if dry_run:
        return _remove_everything(caller, here, others, dry_run=True, delete_work=delete_work)
    was_running = read_holder(state) is not None
    if was_running:  # it has the journals open
        caller.say("Stopping the daemon")
        control_daemon(replace(caller, say=lambda _: None), "stop")  # how to start it again is no help here
    try:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with hold_lock(state, version=__version__, since=now):  # no daemon starts meanwhile
            return _remove_everything(caller, here, others, dry_run=False, delete_work=delete_work)
    finally:
        if was_running and state.is_dir():  # others use it, or the removal was refused
            client.reach_daemon(caller.env).close()


def _require_no_work(context: RepositoryContext) -> None:
    store = context.store()
    if plans := store.list_active_plans(queued=True):
        stop = command("runplan", "stop")
        raise RefusedEarly(f"{', '.join(sorted(plans))}: a run or a schedule is not ended; end it first: {stop}")
    locks = (context.state / LOCK, *(context.state / "dispatch").glob("*/lock"))
    if held := next(filter(is_held, locks), None):
        raise RefusedEarly(f"a process of runplan still works here and holds {held}; wait until it has ended")


def _remove_everything(
    caller: Caller, here: Known | None, others: list[Known], *, dry_run: bool, delete_work: bool
) -> list[Removed | Kept]:
    answers: list[Removed | Kept] = []
    if here is not None:
        answers += _remove_from_repository(caller, here, dry_run=dry_run, delete_work=delete_work)
    state = state_directory(caller.env)
    for known in others:
        record = state / REPOSITORIES / f"{known.key}.json"
        absent = f"{known.root} is not there; make it reachable, or delete {record}"
        used = f"in use by {known.root}; run `runplan uninstall` there, too"
        answers.append(Kept(what=str(state), why=used if known.state.is_dir() else absent))
    if (clones := state / "fleet").is_dir():
        answers.append(Kept(what=str(clones), why="a worker of a fleet may have work there that did not land"))
    elif not others:
        if (service := find_installed(caller.env)) is not None:
            answers.append(Removed(what=str(service.file)))
            if not dry_run:
                change_service(caller, "uninstall", dry_run=False)
        answers += _remove(state, dry_run=dry_run)
    if (file := user_file(caller.env)).is_file():
        answers.append(Kept(what=str(file), why="you wrote it"))
    return answers


def _remove_from_repository(caller: Caller, here: Known, *, dry_run: bool, delete_work: bool) -> list[Removed | Kept]:
    answers: list[Removed | Kept] = []
    with caller.open(lenient=True) as context:
        for answer in gc(caller, dry_run=dry_run).answers:
            if isinstance(answer, Kept) and answer.tip and delete_work:
                if not dry_run:
                    context.git.run("update-ref", "--no-deref", "-d", answer.what, answer.tip)
                answers.append(Removed(what=answer.what))
            else:
                answers.append(answer)
        if not dry_run:
            _require_no_work(context)  # gc took its time
            _require_nothing_is_lost(context, answers, delete_work=delete_work)
        answers += remove_built_images(context, newest=0, dry_run=dry_run)
        root = worktree_root(context.root, context.settings, context.env)
        answers += _remove(context.state, dry_run=dry_run)
        if not dry_run:
            remove_unused_root(root, context.settings)
            (state_directory(caller.env) / REPOSITORIES / f"{here.key}.json").unlink(missing_ok=True)
        paths = context.settings.paths
        for name in (*FILES, paths.plans, paths.reports):
            if (context.root / name).exists():
                answers.append(Kept(what=name, why=f"it belongs to the project; to remove it: git rm -r {name}"))
    return answers


def _require_nothing_is_lost(context: RepositoryContext, answers: list[Removed | Kept], *, delete_work: bool) -> None:
    """Refuse when a worktree, or a ref that is not in the user's repository, would go with the state."""
    for answer in answers:
        if isinstance(answer, Kept) and Path(answer.what).is_absolute():
            raise RefusedEarly(f"{answer.what} was kept: {answer.why}; nothing else was removed. Move it away first")
    tool = context.state / "tool.git"
    if delete_work or not tool.is_dir():
        return
    prefix = context.settings.run.branch_prefix
    made_here = (PARKED, *([f"{HEADS}{prefix}"] if prefix else []))
    for ref, tip in context.git.at(context.root, f"--git-dir={tool}").list_refs(tool).items():
        if ref.startswith(made_here):
            found = context.git.run("for-each-ref", "--count=1", f"--contains={tip}", ok=ANY)
            if found.code != 0 or not found.text:
                raise RefusedEarly(f"{ref} in {tool} is in no branch of this repository; runplan gc says why")


def _remove(directory: Path, *, dry_run: bool) -> list[Removed | Kept]:
    if not directory.is_dir():
        return []
    if not dry_run:
        remove_directory(directory)
        with contextlib.suppress(OSError):  # others use it
            directory.parent.rmdir()
    return [Removed(what=str(directory))]
