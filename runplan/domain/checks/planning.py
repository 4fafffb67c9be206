"""Judges the output of each step of planning by its structure; no word of it has a meaning."""

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.checks.returns import NAME, Unusable, clean_text, decode_return, split_markdown_block
from runplan.domain.errors import PlanUnreadable
from runplan.domain.globs import covers, literal, matches
from runplan.domain.plan import proposal
from runplan.domain.plan.marks import SECTIONS, ExecutionKind, Status
from runplan.domain.plan.model import Phase, parse_plan
from runplan.domain.run.events import Rows
from runplan.domain.run.kinds import Role
from runplan.domain.text import bounded, plain

LONGEST_OUTPUT = 20_000  #: characters of a step's output that later steps get
LONGEST_ROW = 2_000  #: characters of one entry of a list
MOST_ROWS = 50  #: entries of a list that are read
MOST_QUESTIONS = 5
MOST_PHASES = 12
MOST_ITEMS = 10  #: work items of a phase
LEAST_PRINCIPLES = 8
LEAST_PATHS = 2
_OBJECTION = "OPEN"  #: the id of the finding that no principle asks for
_POSITION = r"::|[:#@]L?\d"  #: begins what follows a path: `x.py:12`, `x.py#L12`, `x.py::test_y`
_CODE = r"`[^`]*\w[^`]*`"


class StepFacts(Struct, frozen=True, kw_only=True):
    paths: frozenset[str]  #: every file at the base
    findings: Rows = ()  #: (id, text) of the last critique
    before: str = ""  #: the plan that is revised, "" for none
    rejected: tuple[str, ...] = ()  #: texts that a person rejected
    path: str = "plans/x.md"
    test_command: str = ""
    sections: tuple[str, ...] = SECTIONS  #: that a plan must have
    revises: str = ""  #: the phase for which the plan is revised


class StepResult(Struct, frozen=True, kw_only=True):
    text: str = ""  #: the output for later prompts and the report; of a plan its Markdown without front matter
    problems: tuple[str, ...] = ()  #: why it is not accepted, a sentence each
    findings: Rows = ()  #: of a critique: ("F1", "phase 2: …")
    answers: Rows = ()  #: of a revision: (id of a finding, "changed: …" or "not changed: …")
    questions: tuple[str, ...] = ()  #: of a step before the draft
    verdicts: Rows = ()  #: of a critique: ("P1", "PASS: why")
    title: str = ""  #: of a plan


class _Understanding(Struct):
    problem: str
    success: tuple[str, ...]
    assumptions: tuple[str, ...]
    questions: tuple[str, ...]

    def judge(self, facts: StepFacts) -> StepResult:  # noqa: ARG002
        problem = _one_line(self.problem)
        success = _lines(self.success)
        questions = _lines(self.questions)
        problems = [] if problem else ["problem is empty; say what is wrong or missing today"]
        least = "name at least one criterion by which one sees that it is done"
        problems += [] if success else [f"success is empty; {least}"]
        lists = {"Success": success, "Assumptions": _lines(self.assumptions), "Questions": questions}
        text = _paragraphs(f"Problem: {problem}", *(_listed(title, rows) for title, rows in lists.items()))
        return StepResult(text=text, problems=tuple(problems), questions=questions[:MOST_QUESTIONS])


class _File(Struct):
    path: str
    why: str | None = None


class _Exploration(Struct):
    files: tuple[_File, ...]
    notes: str | None = None
    questions: tuple[str, ...] | None = None

    def judge(self, facts: StepFacts) -> StepResult:
        files = {_one_line(file.path): _one_line(file.why) for file in self.files[:MOST_ROWS]}
        known = {named: path for named in files if (path := _find_path(named, facts.paths))}
        least = min(LEAST_PATHS, len(facts.paths))
        marks = {named: "" if named in known else " (not at the base)" for named in files}
        rows = [f"`{known.get(named, named)}`{marks[named]}: {why}" for named, why in files.items()]
        problems: tuple[str, ...] = ()
        if len(set(known.values())) < least:
            missing = [named[:NAME] for named in files if named not in known]
            wrong = f"; these do not: {', '.join(missing)}" if missing else ""
            count = len(set(known.values()))
            problems = (f"files names {count} paths that exist, and at least {least} are needed{wrong}",)
        text = _paragraphs(_listed("Files", rows), bounded(plain(clean_text(self.notes)), LONGEST_OUTPUT // 2))
        return StepResult(text=text, problems=problems, questions=_lines(self.questions or ())[:MOST_QUESTIONS])


class _Option(Struct):
    name: str
    advantages: tuple[str, ...]
    drawbacks: tuple[str, ...]


class _Alternatives(Struct):
    options: tuple[_Option, ...]
    choice: str
    why: str
    questions: tuple[str, ...] | None = None

    def judge(self, facts: StepFacts) -> StepResult:  # noqa: ARG002
        options = {_one_line(option.name): option for option in self.options[:MOST_ROWS]}
        choice = _one_line(self.choice)
        why = _one_line(self.why)
        parts = []
        problems = []
        if len(options) < 2:
            problems.append(f"options has {len(options)} names that differ; at least two are needed")
        for name, option in options.items():
            good = [f"+ {words}" for words in _lines(option.advantages)]
            bad = [f"- {words}" for words in _lines(option.drawbacks)]
            parts.append("\n".join((f"Option: {name}", *good, *bad)))
            if not name:
                problems.append("an option has no name")
            if not good or not bad:
                problems.append(f"the option {name[:NAME]!r} needs at least one advantage and one drawback")
        if choice not in options:
            problems.append(f"choice is {choice[:NAME]!r}, which is not the name of an option")
        if not why:
            problems.append("why is empty; give the reason of the choice")
        text = _paragraphs(*parts, f"Choice: {choice}, because: {why}")
        return StepResult(text=text, problems=tuple(problems), questions=_lines(self.questions or ())[:MOST_QUESTIONS])


class _Principle(Struct):
    id: str
    verdict: str
    why: str | None = None


class _Finding(Struct):
    id: str | None = None
    where: str | None = None
    text: str | None = None


class _Critique(Struct):
    principles: tuple[_Principle, ...]
    findings: tuple[_Finding, ...]
    objection: str | None = None

    def judge(self, facts: StepFacts) -> StepResult:  # noqa: ARG002
        problems: list[str] = []
        verdicts: dict[str, str] = {}
        for principle in self.principles:
            id_ = principle.id.strip()
            verdict = principle.verdict.strip()
            why = _one_line(principle.why)
            if not re.fullmatch(r"P(?:[1-9]|1[0-2])", id_) or verdict not in ("PASS", "FAIL"):
                named = f"{id_[:NAME]!r} with the verdict {verdict[:NAME]!r}"
                problems.append(f"{named}: write P1 to P12 with PASS or FAIL")
            elif why and not verdicts.get(id_, "").startswith("FAIL"):  # of two verdicts the worse counts
                verdicts[id_] = f"{verdict}: {why}"
        if len(verdicts) < LEAST_PRINCIPLES:
            counted = f"{len(verdicts)} principles have a verdict with a reason"
            problems.append(f"{counted}; at least {LEAST_PRINCIPLES} are needed")
        findings = []
        for number, finding in enumerate(self.findings[:MOST_ROWS], 1):
            id_, where, text = map(_one_line, (finding.id, finding.where, finding.text))
            findings.append((id_, where, text))
            problems += [] if where and text else [f"finding {number} needs where and text"]
        if not findings and any(words.startswith("FAIL") for words in verdicts.values()):
            problems.append("a principle has the verdict FAIL, but there is no finding; say where and what")
        ids = [id_[:NAME] for id_, _, _ in findings]
        if not all(ids) or len(set(ids)) < len(ids):
            ids = [f"F{number}" for number in range(1, len(ids) + 1)]
        rows = tuple((id_, f"{where}: {text}") for id_, (_, where, text) in zip(ids, findings, strict=True))
        if objection := _one_line(self.objection):
            rows = (*rows, (_OBJECTION, f"the whole plan: {objection}"))
        ordered = tuple(sorted(verdicts.items(), key=lambda row: int(row[0][1:])))
        text = _paragraphs(_listed("Principles", map(": ".join, ordered)), _listed("Findings", map(": ".join, rows)))
        return StepResult(text=text, problems=tuple(problems[:MOST_ROWS]), findings=rows, verdicts=ordered)


class _Answer(Struct):
    finding: str
    changed: bool
    how: str | None = None


class _Draft(Struct):
    plan: str | None = None
    answers: tuple[_Answer, ...] | None = None

    def judge(self, facts: StepFacts) -> StepResult:
        markdown = plain(clean_text(self.plan))
        answers = {answer.finding.strip(): answer for answer in self.answers or () if _one_line(answer.how)}
        unanswered = [id_ for id_, _ in facts.findings if id_ not in answers]
        problems = [f"the finding {id_} has no answer; say what you changed, or why not" for id_ in unanswered]
        if len(markdown) > proposal.LONGEST_PLAN + len(facts.before):
            size = f"{len(markdown):,} characters"
            problems.append(f"the plan has {size}, and at most {proposal.LONGEST_PLAN:,} are read; shorten it")
        missing = "there is no plan; put it into the field plan, or into a block fenced as markdown"
        checked = check_plan(markdown, facts) if markdown else StepResult(problems=(missing,))
        answered = [(id_, answers[id_]) for id_, _ in facts.findings if id_ in answers]
        words = {True: "changed", False: "not changed"}
        rows = [(id_, f"{words[answer.changed]}: {_one_line(answer.how)}") for id_, answer in answered]
        text = bounded(checked.text, LONGEST_OUTPUT + len(facts.before))
        return replace(checked, text=text, problems=(*problems, *checked.problems)[:MOST_ROWS], answers=tuple(rows))


_Output: TypeAlias = _Understanding | _Exploration | _Alternatives | _Critique | _Draft
_SHAPES: dict[Role, type[_Output]] = {
    Role.UNDERSTAND: _Understanding,
    Role.EXPLORE: _Exploration,
    Role.ALTERNATIVES: _Alternatives,
    Role.DRAFT: _Draft,
    Role.CRITIQUE: _Critique,
    Role.REVISE: _Draft,
}


def judge_output(role: Role, *, message: str, file_text: str | None, facts: StepFacts) -> StepResult:
    """The output of a step: its return file, else the fenced json block that ends its message; its text in any case."""
    block, rest = split_markdown_block(message) if _SHAPES[role] is _Draft else ("", message)
    match decode_return(file_text, rest, _SHAPES[role]):
        case Unusable() if block.strip() and not facts.findings:
            return _Draft(plan=block).judge(facts)
        case Unusable(why=why):
            return StepResult(problems=(bounded(plain(why), LONGEST_ROW),))
        case _Draft() as draft:
            return replace(draft, plan=draft.plan or block).judge(facts)
        case output:
            return output.judge(facts)


def _find_path(named: str, paths: frozenset[str]) -> str:
    """The file or folder at the base that a text names, as `./x`, `x:12` or from the root of the disk; "" for none."""
    path = named.strip("`'\" ")
    path = path if path in paths else re.split(_POSITION, path, maxsplit=1)[0].removeprefix("./").rstrip("/")
    while path:
        if path in paths or any(other.startswith(f"{path}/") for other in paths):
            return path
        path = path.lstrip("/").partition("/")[2] if named.startswith("/") else ""
    return ""


def check_plan(markdown: str, facts: StepFacts) -> StepResult:
    """The plan without front matter, its title, and what keeps it from being proposed. A person may have edited it."""
    try:
        body = proposal.strip_front_matter(markdown)
        text = proposal.write_proposal(body, title="", created="", path=facts.path, before=facts.before)
        plan = parse_plan(text.encode(), path=facts.path)
        problems = [*proposal.check_revision(facts.before, text, path=facts.path)] if facts.before else []
        earlier = parse_plan(facts.before.encode(), path=facts.path).remarks if facts.before else ()
    except PlanUnreadable as error:
        return StepResult(text=markdown, problems=(str(error).partition(": ")[2],))
    if not facts.before and plan.format != "tracker":
        form = "a table with the columns Phase and Status, and a section `## Phase 1 — Title` for each of its rows"
        problems.append(f"runplan reads this as {plan.read_as}; write {form}")
    if not facts.before and len(plan.phases) > MOST_PHASES:
        count = f"{len(plan.phases)} phases, and at most {MOST_PHASES} are read"
        problems.append(f"the plan has {count}; join or drop some")
    marked = [] if facts.before else [phase for phase in plan.phases if phase.status is not Status.TODO]
    problems += [f"phase {phase.id} is marked {phase.status}; every phase of a new plan is todo" for phase in marked]
    lines = text.split("\n")
    known = {remark.text for remark in earlier}
    remarks = [remark for remark in plan.refusals(strict=True) if remark.is_error or remark.text not in known]
    problems += [f"{remark.text} (line: {lines[remark.line - 1].strip()[:NAME]})" for remark in remarks]
    required = set(proposal.missing_sections(text, facts.sections))
    required -= set(proposal.missing_sections(facts.before, facts.sections) if facts.before else ())
    problems += [f"the section {name} is missing; add a heading with that name" for name in sorted(required)]
    for phase in plan.phases:
        if phase.status is not Status.DONE and phase.text.rstrip() not in facts.before:
            problems += _check_phase(phase, facts)
    if any(proposal.strip_front_matter(text) == proposal.strip_front_matter(rejected) for rejected in facts.rejected):
        problems.append("a person rejected exactly this text; change it")
    is_named = plan.title != facts.path.rpartition("/")[2].removesuffix(".md")
    return StepResult(text=body, title=plan.title if is_named else "", problems=tuple(problems[:MOST_ROWS]))


def _check_phase(phase: Phase, facts: StepFacts) -> Iterator[str]:
    work = [item for item in phase.items if item.id.startswith("W")]
    if not work:
        yield f"phase {phase.id} has no work item; list them below a heading `### Work Items`"
    if len(work) > MOST_ITEMS:
        yield f"phase {phase.id} has {len(work)} work items, and at most {MOST_ITEMS} are read; split the phase"
    criteria = [item.text for item in phase.items if item.id.startswith("C")]
    words = (word.strip("\"'()[],;.") for text in criteria for word in text.split())
    named = [re.split(_POSITION, word, maxsplit=1)[0] for word in words]
    names_file = any(word in facts.paths or covers(phase.touches, word) for word in named if "/" in word or "." in word)
    names_command = facts.test_command and any(facts.test_command in text for text in criteria)
    if not names_file and not names_command and not any(re.search(_CODE, text) for text in criteria):
        form = "names a command, a test or a file in backticks"
        yield f"phase {phase.id} has no criterion that {form}; list them below a heading `### Acceptance Criteria`"
    if phase.execution.kind is ExecutionKind.PLAN and phase.execution.argument not in facts.paths:
        yield f"phase {phase.id}: there is no plan {phase.execution.argument[:NAME]} at the base"
    if phase.execution.kind is ExecutionKind.PLAN_FIRST and phase.id == facts.revises:
        yield f"phase {phase.id} is planned now; remove its line `Execution: {ExecutionKind.PLAN_FIRST}`"
    for pattern in phase.touches:
        if not _is_target(pattern, facts.paths):
            yield f"phase {phase.id}: `Touches: {pattern[:NAME]}` is neither a path at the base nor one to create"


def _is_target(pattern: str, paths: frozenset[str]) -> bool:
    if pattern in paths or not re.search(r"[\s{}<>|]|(?:^|/)\.\.(?:/|$)", pattern):
        prefix = literal(pattern)
        return prefix == pattern or "/" in prefix or pattern in paths or any(matches(pattern, path) for path in paths)
    return False


def _one_line(text: str | None) -> str:
    return bounded(" ".join(plain(clean_text(text)).split()), LONGEST_ROW)


def _lines(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(filter(None, map(_one_line, texts)))[:MOST_ROWS]


def _listed(title: str, rows: Iterable[str]) -> str:
    listed = [f"- {row}" for row in rows]
    return "\n".join((f"{title}:", *listed)) if listed else ""


def _paragraphs(*parts: str) -> str:
    return bounded("\n\n".join(filter(None, parts)), LONGEST_OUTPUT)
