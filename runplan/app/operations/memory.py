"""What earlier runs have taught the agents of a repository: show it, and forget parts of it."""

from contextlib import closing

from runplan.adapters.store.protocol import open_store
from runplan.app.operations.model import Caller
from runplan.domain.errors import NotFound
from runplan.engine.report.lessons import FORGOTTEN, Lesson, read_lessons


def list_lessons(caller: Caller) -> list[Lesson]:
    with caller.open(lenient=True) as context:
        return read_lessons(context.store())


def forget_lessons(caller: Caller, lesson: str = "") -> list[Lesson]:
    """Forget one lesson, or all of them; what is forgotten is never told again, also when it is learned again."""
    caller.refuse_to_agents("memory")
    with caller.open(lenient=True) as context:
        lessons = [known for known in read_lessons(context.store()) if not lesson or known.id == lesson]
        if lesson and not lessons:
            raise NotFound(f"there is no lesson {lesson}; see: runplan memory")
        if lessons:
            with closing(open_store(context.journal)) as store:
                for known in lessons:
                    store.record_notice(FORGOTTEN, known.id)
    return lessons
