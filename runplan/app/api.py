"""runplan for programs: `runplan.open(".")` gives a repository with the operations and the views of the command line.

Errors are those of `runplan.domain.errors`. Nothing is printed, and nothing ends the process. Threads may share it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from runplan.adapters.configuration.load import environment
from runplan.app.operations import commands, planning, requests, start
from runplan.app.operations.model import Answer, Caller, Where
from runplan.app.views.board import read_queue_here
from runplan.app.views.changes import ChangeView, ProposalView, read_change
from runplan.app.views.plans import read_plans
from runplan.app.views.status import PlanView
from runplan.domain.errors import Unreachable
from runplan.domain.standing.queue import QueueEntry
from runplan.engine.report.inbox import InboxEntry, read_inbox


class Repository:
    """The operations on the plans of one repository. A plan is a path, a base name, or a unique part of one."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def _working(self, *, foreground: bool) -> Caller:
        return replace(self._caller, where=Where.HERE if foreground else Where.DAEMON)

    def plans(self) -> list[PlanView]:
        """Every plan with its phases, its run, its schedule, and what a person can do next."""
        with self._caller.open(lenient=True) as context:
            return read_plans(context, "", datetime.now(UTC), warn=self._caller.warn)[0]

    def inbox(self) -> tuple[InboxEntry, ...]:
        """What waits for a person, in this repository."""
        with self._caller.open(lenient=True) as context:
            inbox = read_inbox({str(context.root): context.journal})
        if inbox.unreadable:
            raise Unreachable(inbox.unreadable[0].error)
        return inbox.entries

    def change(self, plan: str, phase: str = "") -> ChangeView | ProposalView:
        """The change, or the proposed plan, that waits for a person; else what landed, or the kept work."""
        with self._caller.open(lenient=True) as context:
            return read_change(context, plan, phase)

    def start(
        self,
        plan: str,
        phase: str = "",
        *,
        finish: bool = False,
        auto: bool = False,
        landing: str = "",
        every: str = "",
        now: bool = False,
        foreground: bool = False,
    ) -> Answer:
        """Work on the plan: its next phase, one phase, or all of it; by the daemon unless `foreground`."""
        words = [phase, "finish" * finish, "auto" * auto, landing, f"every {every}" * bool(every), "now" * now]
        request = requests.StartRequest(plan=plan, options=tuple(filter(None, words)))
        return start.start(self._working(foreground=foreground), request)

    def work(self, count: int | None = 1, *, auto: bool = False, landing: str = "", every: str = "") -> Answer:
        """Work on so many ready plans of the queue, one after the other; on all of them if None. By the daemon."""
        words = [str(count or "all"), "auto" * auto, landing, f"every {every}" * bool(every)]
        return start.work(self._caller, requests.WorkRequest(options=tuple(filter(None, words))))

    def queue(self) -> tuple[QueueEntry, ...]:
        """The open plans in the order in which `work` takes them; one with a `why` is not ready."""
        return read_queue_here(self._caller, "", datetime.now(UTC)).plans

    def plan(self, goal: str, *, quick: bool = False, then: str = "", foreground: bool = False) -> Answer:
        """Have a plan written for the goal; it waits for approval. `then` starts it after that: "finish auto"."""
        request = requests.PlanRequest(goal=goal, quick=quick, then=then)
        return planning.plan(self._working(foreground=foreground), request)

    def revise(self, plan: str, phase: str = "", *, why: str = "") -> Answer:
        return planning.plan(self._caller, requests.PlanRequest(revises=plan, phase=phase, why=why))

    def stop(self, plan: str = "", *, keep_schedule: bool = False) -> Answer:
        return commands.stop(self._caller, requests.StopRequest(plan=plan, keep_schedule=keep_schedule))

    def pause(self, plan: str) -> Answer:
        return commands.pause(self._caller, requests.PauseRequest(plan=plan))

    def resume(self, plan: str) -> Answer:
        return commands.resume(self._caller, requests.ResumeRequest(plan=plan))

    def run_now(self, plan: str = "") -> Answer:
        return commands.now(self._caller, requests.NowRequest(plan=plan))

    def retry(self, plan: str, phase: str = "", *, fresh: bool = False) -> Answer:
        return start.retry(self._caller, requests.RetryRequest(plan=plan, phase=phase, fresh=fresh))

    def undo(self, plan: str, phase: str) -> Answer:
        return start.undo(self._caller, requests.UndoRequest(plan=plan, phase=phase))

    def approve(self, plan: str = "", phase: str = "", *, tree: str = "") -> Answer:
        return commands.approve(self._caller, requests.ApproveRequest(plan=plan, phase=phase, tree=tree))

    def reject(self, plan: str, phase: str = "", *, tree: str = "", why: str = "") -> Answer:
        return commands.reject(self._caller, requests.RejectRequest(plan=plan, phase=phase, tree=tree, why=why))

    def answer(self, id: str, text: str) -> Answer:
        return commands.answer(self._caller, requests.AnswerRequest(id=id, text=text))


def open_repository(
    path: str | Path = ".", *, env: Mapping[str, str] | None = None, say: Callable[[str], None] = lambda _: None
) -> Repository:
    """The repository around a directory. Runs get what they need of `env`, by default that of this process.

    `say` gets each message while an operation works; its answer has all of them.
    """
    env = environment() if env is None else env
    return Repository(Caller(cwd=Path(path).absolute(), env=env, say=say, warn=lambda text: say(f"warning: {text}")))
