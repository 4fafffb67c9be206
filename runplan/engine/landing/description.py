"""The title and description of a plan's pull request, and the text of runplan's commit status. Pure."""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from runplan.adapters.forge.protocol import CheckState
from runplan.domain.plan.marks import Status
from runplan.domain.plan.model import Plan
from runplan.domain.text import counted, inert

BEGIN = "<!-- runplan:progress -->"
END = "<!-- /runplan:progress -->"
DRAFT = "<!-- runplan:draft -->"  #: in the block while the draft is runplan's own
PEOPLE = "<!-- runplan:people -->"  #: in the block until labels, assignees and reviewers were added
_BLOCK = f"(?s){BEGIN}(?:(?!{BEGIN}).)*?{END}"  #: a mark whose end a person deleted begins no block
LONGEST_TITLE = 120
LONGEST_BODY = 65_000  #: characters of a description; GitHub takes 65,536
#: Names of a template in lower case, in the order in which GitHub looks for it.
TEMPLATES = (".github/pull_request_template.md", "pull_request_template.md", "docs/pull_request_template.md")
TEMPLATE_FOLDER = ".github/pull_request_template/"
TEMPLATE_FOLDERS = (".github/", TEMPLATE_FOLDER, TEMPLATE_FOLDER.upper().replace("GITHUB", "github"), "docs/")
#: Names of sections and boxes of a template that can be filled: in lower case, without marks.
SUMMARIES = ("summary", "description", "overview", "why", "motivation", "motivation and context")
TESTS = ("tests", "testing", "test plan", "how was this tested", "how has this been tested")
TESTED = ("tests pass", "tests passed", "tests are passing", "all tests pass", "all tests passed")
REVIEWING = "**How to review:** {} is below. Commits that change only the plan and its report are bookkeeping."
FOOTER = (
    "<sub>Written by runplan, which keeps the text between its marks up to date. In the first line of a comment, "
    "`/runplan stop` stops it and `/runplan retry` has it try again.</sub>"
)
MOST_DOUBTS = 20


class PhaseProgress(Struct, frozen=True, kw_only=True):
    """A phase in one line of Markdown, its items in one line each, and those of its agent."""

    line: str
    items: tuple[str, ...]
    is_done: bool
    remarks: tuple[str, ...] = ()


class PlanProgress(Struct, frozen=True, kw_only=True):
    """What a pull request shows of its plan; the texts are Markdown in which tags are escaped."""

    path: str
    title: str
    goal: str
    phases: tuple[PhaseProgress, ...]
    changes: tuple[str, ...] = ()  #: the summaries of the agents that wrote the done phases
    doubts: tuple[str, ...] = ()  #: what a reviewer has to look at
    repairs: tuple[str, ...] = ()  #: after a review, failed checks, or a moved target
    is_tested: bool = False

    @property
    def is_complete(self) -> bool:
        return all(phase.is_done for phase in self.phases)


def status_of(plan: Plan) -> tuple[CheckState, str]:
    """The commit status of a plan without a failure. A phase without items counts as one."""
    counts = [(max(1, len(phase.items)), phase.status is Status.DONE) for phase in plan.phases]
    proven = sum(count for count, is_done in counts if is_done)
    state = CheckState.PASSED if all(is_done for _, is_done in counts) else CheckState.PENDING
    return state, f"{proven} of {counted(sum(count for count, _ in counts), 'item')} proven"


def choose_template(paths: Iterable[str]) -> str:
    """The path of the repository's template among these; the sole one of a folder counts, "" for none."""
    by_name = {path.lower(): path for path in paths}
    several = [path for name, path in by_name.items() if name.startswith(TEMPLATE_FOLDER) and name.endswith(".md")]
    named = next((by_name[name] for name in TEMPLATES if name in by_name), "")
    return named or (several[0] if len(several) == 1 else "")


def fill_template(template: str, plan: PlanProgress) -> str:
    """The template with the sections and boxes filled whose names are clear, and which a person has to fill alone."""
    words = dict.fromkeys(SUMMARIES, _quiet(plan.goal or plan.title))
    if plan.is_tested:
        words |= dict.fromkeys(TESTS, "The tests passed on the tree of each phase; the counts are above.")
    parts = re.split(r"(?m)^(#{1,6}[ \t].*)$", template)  # text, then heading and text in turn
    for place in range(1, len(parts), 2):
        filled = words.get(_name(parts[place]))
        if filled and not re.sub(r"(?s)<!--.*?-->", "", parts[place + 1]).strip():
            parts[place + 1] = f"\n\n{filled}\n" + parts[place + 1]
    text = "".join(parts)
    if not plan.is_tested:
        return text
    boxes = r"(?m)^(\s*[-*] )\[ \] (.+)$"
    return re.sub(boxes, lambda box: f"{box[1]}[{'x' if _name(box[2]) in TESTED else ' '}] {box[2]}", text)


def _name(text: str) -> str:
    return " ".join(re.sub(r"[^\w ]", "", text).split()).casefold()


def describe_change(plan: PlanProgress) -> list[str]:
    """Two sentences on the change, why, how to review it, and what is uncertain."""
    sentences = [re.split(r"(?<=[.!?])\s", summary) for summary in plan.changes]
    shown = sentences[0][:2] if len(sentences) == 1 else [first for first, *_ in sentences[-2:]]
    change = " ".join(sentence if sentence[-1:] in ".!?" else f"{sentence}." for sentence in shown)
    lines = [f"**What changed:** {_quiet(change)}", ""] if change else []
    lines += [f"**Why:** {_quiet(plan.goal)}", ""] if plan.goal else []
    evidence = "phase by phase; each has its own commits, and the evidence" if len(plan.phases) > 1 else "the evidence"
    lines += [REVIEWING.format(evidence), ""]
    if plan.doubts:
        lines += ["**Uncertain:**", "", *(f"- {_quiet(doubt)}" for doubt in plan.doubts[:MOST_DOUBTS]), ""]
    return lines


def body_of(
    before: str,
    plan: PlanProgress,
    *,
    report: str,
    fixes: Sequence[int],
    marks: str = "",
    template: str = "",
    link: Callable[[str, int], str] = lambda _path, _line: "",
    stack: Sequence[tuple[str, str, str]] = (),
) -> str:
    """The description with the progress of the plan; text outside of the marked block stays as it is.

    `link` has the address of a line of a file, and "" for a file that is not there. `stack` has number, title
    and state of each pull request of a stack.
    """
    # Where the block is too long, the items of the first phases go before those of the last ones. Where that text
    # leaves no space for the block, the description stays as it was.
    closing = "".join(f"\n\nFixes #{number}" for number in fixes)
    around = before if re.search(_BLOCK, before) else f"{before.rstrip()}\n\n{BEGIN}{END}{closing}".lstrip()
    around += f"\n\n{fill_template(template, plan)}" if template and not before else ""
    done = sum(phase.is_done for phase in plan.phases)
    head = f"**{done} of {counted(len(plan.phases), 'phase')}** of `{plan.path}` · [report]({report})"
    phases = [
        [
            _quiet(_box(phase.line, phase)),
            *(f"  {_link_lines(_quiet(_box(item, phase)), link)}" for item in phase.items),
            *(f"  - {_quiet(remark)}" for remark in phase.remarks),
        ]
        for phase in plan.phases
    ]
    rows = ((number, title.replace("<", "&lt;").replace("|", "\\|"), state) for number, title, state in stack)
    table = [f"| {number} | {_quiet(title)} | {state} |" for number, title, state in rows]
    table = ["| stack | title | state |", "|---|---|---|", *table, ""] if table else []
    top = [f"{BEGIN}{marks}", *table, *describe_change(plan), head, ""]
    repairs = [f"- {_quiet(repair)}" for repair in plan.repairs]
    bottom = [*(["", "**Changed afterwards:**", "", *repairs] if repairs else []), "", FOOTER, END]
    space = LONGEST_BODY - len(re.sub(_BLOCK, "", around, count=1))
    left = space - sum(len(line) + 1 for line in (*top, *bottom))
    for number, lines in enumerate(phases):
        if sum(len(line) + 1 for rows in phases for line in rows) <= left:
            break
        hidden = f" ({len(lines) - 1} items: see the report)" if len(lines) > 1 else ""
        phases[number] = [f"{lines[0]}{hidden}"]
    shown = list[str]()
    for line in (line for lines in phases for line in lines):
        left -= len(line) + 1
        if left < 0:
            shown.append("- …")
            break
        shown.append(line)
    body = re.sub(_BLOCK, lambda _: "\n".join([*top, *shown, *bottom]), around, count=1)
    return body if len(body) <= LONGEST_BODY else before or template


def marks_of(body: str) -> str:
    """The marks at the beginning of the marked block; a template may contain them elsewhere."""
    block = re.search(f"{BEGIN}((?:{DRAFT}|{PEOPLE})*)", body)
    return block[1] if block else ""


def _link_lines(text: str, link: Callable[[str, int], str]) -> str:
    """The text in which `path:line` is a link, outside of code."""
    places = r"(?<![\w/.`\[-])([\w.-][\w./-]*):(\d+)(?![\w`])"
    return re.sub(
        places, lambda place: f"[{place[0]}]({url})" if (url := link(place[1], int(place[2]))) else place[0], text
    )


def _box(text: str, phase: PhaseProgress) -> str:
    return f"- [{'x' if phase.is_done else ' '}] {text}"


def _quiet(text: str) -> str:
    """The text without effect on the forge, and without a comment that could end the block."""
    return inert(text).replace("<!--", "<\u200b!--")
