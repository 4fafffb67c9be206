"""The operations by name, for interfaces that make requests of named fields."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from runplan.app.operations import commands, planning, requests, start, upkeep
from runplan.app.operations.model import Answer, Caller, Declined, Operation
from runplan.domain.errors import Exit, RunplanError, refused_by_system
from runplan.domain.text import plain

#: The function and the type of its request.
OPERATIONS: dict[str, tuple[Operation[Any], type]] = {
    "start": (start.start, requests.StartRequest),
    "watch-issues": (start.watch_issues, requests.WatchIssuesRequest),
    "work": (start.work, requests.WorkRequest),
    "queue": (start.queue, requests.QueueRequest),
    "plan": (planning.plan, requests.PlanRequest),
    "edit": (planning.edit, requests.EditRequest),
    "stop": (commands.stop, requests.StopRequest),
    "pause": (commands.pause, requests.PauseRequest),
    "resume": (commands.resume, requests.ResumeRequest),
    "now": (commands.now, requests.NowRequest),
    "retry": (start.retry, requests.RetryRequest),
    "undo": (start.undo, requests.UndoRequest),
    "approve": (commands.approve, requests.ApproveRequest),
    "reject": (commands.reject, requests.RejectRequest),
    "answer": (commands.answer, requests.AnswerRequest),
    "tell": (commands.tell, requests.TellRequest),
    "forget": (upkeep.forget, requests.ForgetRequest),
}


class OperationResult(Struct, frozen=True, kw_only=True):
    """What an interface without a terminal shows of a request: its exit code, and everything that was said."""

    code: Exit
    notices: tuple[str, ...]
    answer: Answer | None = None  #: None after an error, which is the last notice

    @property
    def why(self) -> str:
        return self.notices[-1] if self.notices else ""


def try_operation(name: str, caller: Caller, request: object) -> OperationResult:
    """Carry out the operation; an error becomes an exit code and its sentence."""
    say = caller.say
    caller, said = replace(caller, warn=lambda text: say(f"warning: {text}")).recording()
    try:
        answer = OPERATIONS[name][0](caller, request)
    except (RunplanError, OSError) as error:
        code = error.exit if isinstance(error, RunplanError) else Exit.UNREACHABLE
        return OperationResult(code=code, notices=(*said, plain(refused_by_system(error) or str(error))))
    code = answer.exit if isinstance(answer, Declined) else Exit.DONE
    return OperationResult(code=code, notices=answer.notices, answer=answer)
