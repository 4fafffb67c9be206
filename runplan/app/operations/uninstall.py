"""Removes what runplan left in a repository and in the home; work that did not land stays, unless it may go."""

import contextlib
from pathlib import Path

from runplan.adapters.configuration.places import remove_unused_root, state_directory, user_file, worktree_root
from runplan.adapters.store.files import remove_directory
from runplan.app.machine import change_service, control_daemon
from runplan.app.operations.model import Caller
from runplan.app.operations.upkeep import gc
from runplan.domain.errors import RefusedEarly, RunplanError
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.settings.schema import FILES
from runplan.domain.text import command
from runplan.engine.loop.context import RepositoryContext
from runplan.hosts.daemon import client
from runplan.hosts.daemon.service import find_installed
from runplan.hosts.daemon.state import REPOSITORIES, Known, list_repositories, read_holder


def uninstall(caller: Caller, *, dry_run: bool, delete_work: bool) -> list[Removed | Kept]:
    """Remove the state of this repository, and that of the home when no other repository uses it.

    Outside of a repository only the home is looked at. Refused while a run or a schedule needs the state.
    """
    if not dry_run:
        caller.refuse_to_agents("uninstall")
    state = state_directory(caller.env)
    here = None
    answers: list[Removed | Kept] = []
    try:
        with caller.open(lenient=True) as context:
            here = Known(common=str(context.common_dir), root=str(context.root))
            _require_no_work(context)
    except RunplanError as error:
        if here is not None:
            raise
        if dry_run:
            caller.say(f"{error}; only the files in the home are looked at")
    others = [known for known in list_repositories(state) if known.state.is_dir() and known != here]
    was_running = read_holder(state) is not None
    if was_running and not dry_run:  # it has the journals open
        control_daemon(caller, "stop")
    if here is not None:
        answers += _remove_from_repository(caller, here, dry_run=dry_run, delete_work=delete_work)
    if others:
        used_by = ", ".join(known.root for known in others)
        answers.append(Kept(what=str(state), why=f"in use by {used_by}; run `runplan uninstall` there, too"))
        if was_running and not dry_run:
            client.reach_daemon(caller.env).close()
        return answers
    service = find_installed(caller.env)
    if service is not None:
        answers.append(Removed(what=str(service.file)))
        if not dry_run:
            change_service(caller, "uninstall", dry_run=False)
    answers += _remove(state, dry_run=dry_run)
    if (file := user_file(caller.env)).is_file():
        answers.append(Kept(what=str(file), why="you wrote it"))
    return answers


def _require_no_work(context: RepositoryContext) -> None:
    if context.fleet is not None:
        raise RefusedEarly("a fleet works on the plans of this repository; take fleet.dsn out of your settings first")
    store = context.store()
    plans = {row.plan for row in store.list_unfinished_runs()} | {row.plan for row in store.list_schedules()}
    plans |= {row.plan for row in store.list_queued_commands()}
    if plans:
        stop = command("runplan", "stop")
        raise RefusedEarly(f"{', '.join(sorted(plans))}: a run or a schedule is not ended; end it first: {stop}")


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


def _remove(directory: Path, *, dry_run: bool) -> list[Removed | Kept]:
    if not directory.is_dir():
        return []
    if not dry_run:
        remove_directory(directory)
        with contextlib.suppress(OSError):  # others use it
            directory.parent.rmdir()
    return [Removed(what=str(directory))]
