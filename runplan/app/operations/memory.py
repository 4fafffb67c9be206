"""What earlier runs have taught the agents of a repository: show it, and forget parts of it."""

from contextlib import closing

from runplan.adapters.store.protocol import open_store
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, operation
from runplan.app.operations.requests import ForgetRequest
from runplan.domain.errors import NotFound
from runplan.engine.report.lessons import FORGOTTEN, Lesson, read_lessons


def list_lessons(caller: Caller) -> list[Lesson]:
    with caller.open(lenient=True) as context:
        return read_lessons(context.store())


@operation
def forget(caller: Caller, request: ForgetRequest) -> Answer:
    """What is forgotten is never told again, also when it is learned again."""
    with caller.open(lenient=True) as context:
        lessons = [lesson for lesson in read_lessons(context.store()) if request.id in ("", lesson.id)]
        if request.id and not lessons:
            raise NotFound(f"there is no lesson {request.id}; see: runplan memory")
        if lessons:
            with closing(open_store(context.journal)) as store:
                for lesson in lessons:
                    store.record_notice(FORGOTTEN, lesson.id)
    for lesson in lessons:
        caller.say(f"forgotten: {lesson.text}")
    return Accepted() if lessons else Declined()
