"""The title and description of a plan's pull request, and the text of runplan's commit status. Pure."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from runplan.adapters.forge.model import CheckState
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


def body_of(before: str, plan: PlanProgress, *, report: str, fixes: Sequence[int], marks: str = "") -> str:
    """The description with the progress of the plan; text outside of the marked block stays as it is."""
    # Where the block is too long, the items of the first phases go before those of the last ones. Where that text
    # leaves no space for the block, the description stays as it was.
    closing = "".join(f"\n\nFixes #{number}" for number in fixes)
    around = before if re.search(_BLOCK, before) else f"{before.rstrip()}\n\n{BEGIN}{END}{closing}".lstrip()
    done = sum(phase.is_done for phase in plan.phases)
    head = f"**{done} of {counted(len(plan.phases), 'phase')}** of `{plan.path}` · [report]({report})"
    goal = [_quiet(plan.goal), ""] if plan.goal else []
    phases = [
        [
            _quiet(_box(phase.line, phase)),
            *(f"  {_quiet(_box(item, phase))}" for item in phase.items),
            *(f"  - {_quiet(remark)}" for remark in phase.remarks),
        ]
        for phase in plan.phases
    ]
    top = [f"{BEGIN}{marks}", head, "", *goal]
    space = LONGEST_BODY - len(re.sub(_BLOCK, "", around, count=1))
    left = space - sum(len(line) + 1 for line in (*top, END))
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
    body = re.sub(_BLOCK, lambda _: "\n".join([*top, *shown, END]), around, count=1)
    return body if len(body) <= LONGEST_BODY else before


def marks_of(body: str) -> str:
    """The marks at the beginning of the marked block; a template may contain them elsewhere."""
    block = re.search(f"{BEGIN}((?:{DRAFT}|{PEOPLE})*)", body)
    return block[1] if block else ""


def _box(text: str, phase: PhaseProgress) -> str:
    return f"- [{'x' if phase.is_done else ' '}] {text}"


def _quiet(text: str) -> str:
    """The text without effect on the forge, and without a comment that could end the block."""
    return inert(text).replace("<!--", "<\u200b!--")
