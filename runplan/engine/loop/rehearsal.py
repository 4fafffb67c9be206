"""Runs run.setup and the checks once in a fresh worktree, as the first phase of a run would. Nothing is recorded."""

import os
from collections.abc import Callable

from msgspec.structs import replace

from runplan.adapters.store.files import file_lock, remove_directory
from runplan.domain.errors import RefusedEarly, RunplanError
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import GRACE_S
from runplan.domain.run.kinds import Mode
from runplan.domain.run.state import RunState, apply, fold, list_running
from runplan.engine.loop.advance import act
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.repository import make_run_context
from runplan.engine.steps.context import OpenRepository, RunContext
from runplan.engine.steps.process import is_for_writers

SLUG = "doctor_run"  #: in the name of the worktree; no plan has it, for the slugs of plans have no underscore
LOCK = "locks/doctor.lock"  #: below the directory of the journal; held while a rehearsal uses its worktree


def rehearse_phase(
    repository_context: RepositoryContext, repository: OpenRepository, on_event: Callable[[e.Event], None]
) -> RunState:
    """Work a phase in memory until its first agent is due, and remove everything that was made for it."""
    run = f"doctor{os.urandom(4).hex()}"
    landing = repository_context.settings.run.landing
    target = repository_context.settings.run.target
    options = e.RunStarted(
        plan=SLUG, title="", slug=SLUG, mode=Mode.PHASE, wanted=SLUG, auto=False, landing=landing, target=target
    )
    started = repository_context.record_settings(options)
    context = make_run_context(repository_context, repository, run=run, started=started)
    context = replace(context, reuses_results=False)
    lock = file_lock(repository_context.state / LOCK)
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        raise RefusedEarly("another `runplan doctor --run` is running in this repository; wait for its end") from None
    try:
        state = fold([started, e.PhaseChosen(tip=context.tip(), phase=SLUG)])
        return _work_phase(state, context, on_event)
    finally:
        lock.release()
        for directory in (repository_context.state / "dispatch").glob(f"{run}.*"):
            remove_directory(directory)


def _work_phase(state: RunState, context: RunContext, on_event: Callable[[e.Event], None]) -> RunState:
    """Take the steps of the phase; the one that would start an agent stops it."""
    trouble: BaseException | None = None
    while state.ended is None:
        (action,) = decide(state).actions
        try:
            dispatch = action.dispatch if isinstance(action, a.Start) else None
            # The worktree of an agent would be set up as that of the checks was.
            if dispatch and (dispatch.role.is_writer or (is_for_writers(dispatch) and state.work.setup.tree)):
                state = apply(state, e.StopRequested(by=SLUG))
                continue
            if action.step == a.END.step:
                context.dispatches.end(list_running(state), grace_s=GRACE_S)
            if action.step == a.CLEAN_UP.step:
                context.zone.remove()  # no agent has had it: what run.setup changed there is no work to keep
            for event in act(action, state, context):
                state = apply(state, event)
                on_event(event)
            if action.step == a.AWAIT.step and (ids := list_running(state)):
                context.dispatches.wait(ids, timeout_s=None)
        except (KeyboardInterrupt, RunplanError) as error:
            if trouble is not None:
                raise
            trouble = error
            state = apply(state, e.StopRequested(by=SLUG))
    if trouble is not None:
        raise trouble
    return state
