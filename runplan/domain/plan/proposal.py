"""Proposed plans: their text, what it asks of a person, and what a revision may change."""

import re
import unicodedata
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from runplan.domain import names
from runplan.domain.plan.marks import SECTIONS, ExecutionKind, PlanStatus, Status
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.plan.scan import marks_within, scan_lines
from runplan.domain.plan.tracker import add_tracker, put_key
from runplan.domain.text import counted, plain, visible

LONGEST_PLAN = 12_000  #: characters
LONGEST_TITLE = 60
_NONE = frozenset({"", "none", "n a"})  #: in a section of questions: there is none
_PATH = "the plan"  #: in errors, where no path is known
_SIMPLE = r"[^\W\d][\w ,./()-]*"  #: a title that needs no quotes in YAML


class PhaseSummary(Struct, frozen=True):
    id: str
    title: str
    items: int  #: work items and criteria


class Summary(Struct, frozen=True, kw_only=True):
    title: str
    phases: tuple[PhaseSummary, ...]  #: without those that are done
    characters: int
    open_questions: tuple[str, ...]
    permissions: tuple[str, ...]  #: a sentence each
    sign_offs: tuple[str, ...]
    dispatches: int  #: an implementer and a verifier for each phase, and a last verifier

    @property
    def is_free(self) -> bool:
        return not self.open_questions and not self.permissions


def write_proposal(
    markdown: str, *, title: str, created: str, issues: Sequence[int] = (), path: str = _PATH, before: str = ""
) -> str:
    """The agent's text with our front matter and a tracker; a revision keeps what is runplan's in the text `before`."""
    old = scan_lines(before.encode(), path=path)
    quoted = title if re.fullmatch(_SIMPLE, title) else '"' + title.replace("\\", "\\\\").replace('"', '\\"') + '"'
    fields = [f"title: {quoted}"] if title else []
    fields += [f"status: {PlanStatus.PROPOSED}", f"created: {created}", *(f"issue: {number}" for number in issues)]
    front = old.text_between(0, old.front + 1) if old.front else "\n".join(("---", *fields, "---", ""))
    mark = "\ufeff" if before.startswith("\ufeff") else ""
    text = re.sub(r"\r?\n", old.eol.decode(), f"{mark}{front}\n{strip_front_matter(markdown)}").encode()
    text = put_key(text, path=path, key="status", value=PlanStatus.PROPOSED)
    return (text if before else add_tracker(text, path=path)).decode()


def strip_front_matter(markdown: str) -> str:
    lines = scan_lines(markdown.encode(), path=_PATH)
    first = lines.front + 1 if lines.fields else 0
    return lines.text_between(first, len(lines.texts)).lstrip("\ufeff").strip("\n") + "\n"


def set_plan_status(text: str, status: PlanStatus) -> str:
    return put_key(text.encode(), path=_PATH, key="status", value=status).decode()


def missing_sections(text: str, sections: Sequence[str] = SECTIONS) -> tuple[str, ...]:
    """The sections without a heading that begins with their name, in the singular or the plural."""
    titles = [_normalize(heading.text) for heading in scan_lines(text.encode(), path=_PATH).headings]
    words = {name: _normalize(name).removesuffix("s") for name in sections}
    return tuple(name for name, word in words.items() if not any(title.startswith(word) for title in titles))


def describe_summary(summary: Summary, *, is_edited: bool, number: int = 1, notes: Sequence[str] = ()) -> list[str]:
    label = (f", revision {number}" if number > 1 else "") + (", edited by user" if is_edited else "")
    size = f"{counted(len(summary.phases), 'phase')}, {summary.characters:,} characters"
    lines = [f"{summary.title}: {size}, about {counted(summary.dispatches, 'dispatch', 'dispatches')}{label}"]
    lines += [f"  phase {phase.id} {phase.title} ({counted(phase.items, 'item')})" for phase in summary.phases]
    lines += [f"  {note}" for note in notes]
    lines += [f"  permits: {permission}" for permission in summary.permissions]
    lines += [f"  sign-off: {criterion}" for criterion in summary.sign_offs]
    lines += [f"  open question: {question}" for question in summary.open_questions]
    return [visible(line, is_prose=True) for line in lines]


def summarize(text: str, *, path: str) -> Summary:
    plan = parse_plan(text.encode(), path=path)
    phases = [phase for phase in plan.phases if phase.status is not Status.DONE]
    permissions: list[str] = []
    for phase in phases:
        if phase.allows:
            allowed = ", ".join(phase.allows)
            permissions.append(f"phase {phase.id} may change guarded files and promises of tests: {allowed}")
        if not phase.touches:
            permissions.append(f"phase {phase.id} has no Touches: line and may change any file")
        if phase.execution.kind is not ExecutionKind.WORKTREE:
            permissions.append(f"phase {phase.id} is worked with Execution: {phase.execution.text}")
        own = asdict(phase.own).items()
        permissions += [f"phase {phase.id} sets its {name}: {value}" for name, value in own if value]
    # The paragraphs and list entries below headings of questions; the word None stands for no question.
    lines = scan_lines(text.encode(), path=path)
    questions: list[str] = []
    for heading in (heading for heading in lines.headings if _normalize(heading.text).startswith("open question")):
        below = marks_within(lines.headings, heading.at + 1, heading.end)
        end = below[0].at if heading.level == 1 and below else heading.end
        paragraphs = [""]
        for index in range(heading.at + 1, end):
            row = lines.texts[index].strip()
            entries = marks_within(lines.entries, index, index + 1)
            if entries or not row:
                paragraphs.append(entries[0].text if entries else "")
            else:
                paragraphs[-1] = f"{paragraphs[-1]} {row}".strip()
        questions += (paragraph for paragraph in paragraphs if _normalize(paragraph) not in _NONE)
    return Summary(
        title=plan.title,
        phases=tuple(PhaseSummary(phase.id, phase.title, len(phase.items)) for phase in phases),
        characters=len(text),
        open_questions=tuple(questions),
        permissions=tuple(permissions),
        sign_offs=tuple(f"phase {phase.id}: {words}" for phase in phases for words in phase.sign_off),
        dispatches=2 * len(phases) + 1,
    )


def _normalize(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text).strip().casefold()


def describe_unrevisable(plan: Plan) -> str:
    """Why agents cannot revise the plan; "" when they can. The phases of other formats have no criteria."""
    is_revisable = plan.format in ("tracker", "sections")
    return "" if is_revisable else f"agents revise plans with phase sections, not a {plan.read_as}; edit it yourself"


def check_revision(before: str, after: str, *, path: str = _PATH) -> tuple[str, ...]:
    """Why a text is no revision of a plan: finished phases stay as they are, and every id stays."""
    olds = {phase.id: phase for phase in parse_plan(before.encode(), path=path).phases}
    news = {phase.id: phase for phase in parse_plan(after.encode(), path=path).phases}
    old_rows = scan_lines(before.encode(), path=path).texts
    new_rows = scan_lines(after.encode(), path=path).texts
    problems = []
    for id_, old in olds.items():
        if (new := news.get(id_)) is None:
            problems.append(f"phase {id_} is missing; every phase of the plan before keeps its id")
        elif old.status is Status.DONE and (
            new.text.rstrip() != old.text.rstrip() or new_rows[new.line - 1] != old_rows[old.line - 1]
        ):
            problems.append(f"phase {id_} is done; its section and its row stay byte for byte")
    done = {id_ for id_, old in olds.items() if old.status is Status.DONE}
    invented = [new.id for new in news.values() if new.status is Status.DONE and new.id not in done]
    return (*problems, *(f"phase {id_} is marked done, but nobody has worked on it" for id_ in invented))


def title_of_goal(text: str) -> str:
    """The first heading of level 1 of a goal, else its first line with a word, cut at the end of a word."""
    lines = scan_lines(plain(text).encode("utf-8", "replace"), path="the goal")
    texts = [heading.text for heading in lines.headings if heading.level == 1]
    texts += lines.texts[lines.front + 1 if lines.front else 0 :]
    title = next((" ".join(line.strip(" \t#>*_`-").split()) for line in texts if re.search(r"\w", line)), "")
    if len(title) <= LONGEST_TITLE:
        return title
    return title[: LONGEST_TITLE + 1].rpartition(" ")[0].rstrip(" ,;:—–-") or title[:LONGEST_TITLE]


def slug_of_title(title: str) -> str:
    ascii_title = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode()
    named = names.slug(f"{(ascii_title if _normalize(ascii_title) else title).replace('/', ' ')}.md")
    return f"{named}-plan" if f"{named}.md" == names.PLAN_FILE else named
