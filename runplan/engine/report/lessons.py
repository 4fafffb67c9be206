"""What the runs of a repository have taught, from facts of its journal, for the agents of later runs."""

from collections.abc import Iterable

from msgspec import Struct

from runplan.adapters.store.protocol import Store
from runplan.domain.names import digest_of
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import StepJudged
from runplan.domain.run.kinds import NOT_OF_WORK, Role
from runplan.domain.run.recorded import Recorded
from runplan.domain.text import bounded

FORGOTTEN = "memory"  #: stands for the run in notices about lessons that nobody wants to see again
LONGEST = 240  #: characters of a lesson
MOST_BYTES = 2_000  #: of the lessons in a prompt
KINDS: tuple[type[e.Event], ...] = (
    *(e.RunStarted, e.WorkTaken, e.Landed, e.PhaseFailed, e.Answered),
    *(e.QuestionAsked, e.QuestionAnswered, StepJudged),
)


class Lesson(Struct, frozen=True, kw_only=True):
    id: str
    text: str
    source: str  #: agent, rejection, answer, failure, critique
    count: int = 1  #: how often it was learned
    last: str  #: UTC ISO-8601


def read_lessons(store: Store, *, without: str = "") -> list[Lesson]:
    """The lessons of all runs but one, whose prompts say the same in other places."""
    lessons = collect_lessons(fact for fact in store.list_facts(*KINDS) if fact.run != without)
    forgotten = store.list_notices(FORGOTTEN) if lessons else ()
    return [lesson for lesson in lessons if lesson.id not in forgotten]


def collect_lessons(records: Iterable[Recorded[e.Event]]) -> list[Lesson]:
    """The lessons, those that were learned most often first, then the newest."""
    lessons: dict[str, Lesson] = {}

    def learn(source: str, text: str, time: str) -> None:
        text = bounded(" ".join(text.split()), LONGEST)
        id_ = digest_of(text.casefold().rstrip(".").encode("utf-8", "surrogateescape"))[:8]
        if text:
            known = lessons.pop(id_, None)
            lessons[id_] = Lesson(id=id_, text=text, source=source, count=known.count + 1 if known else 1, last=time)

    said: dict[tuple[str, str], tuple[str, ...]] = {}  # by run and lane: lessons of work that has not landed yet
    plans: dict[str, str] = {}  # by run
    failed: dict[tuple[str, str], str] = {}  # by plan and phase
    asked: dict[str, str] = {}  # by the id of the question
    for record in sorted(records, key=lambda record: record.seq):
        lane = (record.run, record.event.lane)
        match record.event:
            case e.RunStarted(plan=plan):
                plans[record.run] = plan
            case e.WorkTaken(remarks=remarks):
                said[lane] = tuple(dict.fromkeys((*said.get(lane, ()), *remarks.memory)))
            case e.PhaseFailed(reason=reason, title=title, phase=phase, detail=detail, rejected=rejected):
                said.pop(lane, None)
                if reason not in NOT_OF_WORK and rejected is None:
                    words = f"{title or f'phase {phase}'} failed at first ({reason}): {detail}"
                    failed[plans.get(record.run, ""), phase] = words
            case e.Landed(phase=phase):
                for text in said.pop(lane, ()):
                    learn("agent", text, record.at)
                learn("failure", failed.pop((plans.get(record.run, ""), phase), ""), record.at)
            case e.Answered(approved=False, why=why):
                learn("rejection", f"a person rejected work: {why}" if why else "", record.at)
            case e.QuestionAsked(id=id_, text=text):
                asked[id_] = text
            case e.QuestionAnswered(id=id_, text=text):
                learn("answer", f"asked: {bounded(asked.get(id_, ''), LONGEST // 2)} answered: {text}", record.at)
            case StepJudged(role=Role.CRITIQUE, findings=findings, verdicts=verdicts):
                broken = [(name, words) for name, words in verdicts if words.startswith("FAIL")]
                for _, text in (*findings, *broken):
                    learn("critique", text.removeprefix("FAIL: "), record.at)
    newest = list(reversed(lessons.values()))
    return sorted(newest, key=lambda lesson: -lesson.count)


def choose_lessons(lessons: Iterable[Lesson]) -> list[str]:
    """Those that a prompt has space for."""
    chosen: list[str] = []
    left = MOST_BYTES
    for lesson in lessons:
        line = f"- {lesson.source}: {lesson.text}" + (f" ({lesson.count} times)" if lesson.count > 1 else "")
        left -= len(line.encode("utf-8", "surrogateescape")) + 1
        if left >= 0:
            chosen.append(line)
    return chosen
