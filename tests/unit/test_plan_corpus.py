"""Plans of every format, as people write them: phases, ids, items, statuses and dependencies are data.

The plans are in `tests/plans/<format>/`, what they mean is in the `expected.json` beside them.
"""

import contextlib
import cProfile
import json
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Phase, Plan, Status, lay_out, other_way, parse_plan
from runplan.domain.plan.tracker import add_tracker, set_status

PLANS = Path(__file__).parent.parent / "plans"
FILES = sorted(PLANS.glob("*/*.md"))
named = pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=lambda folder: folder.name)


def read(raw: bytes) -> Plan:
    return parse_plan(raw, path="p.md")


def described(phase: Phase) -> dict[str, Any]:
    items = [f"{item.id} {item.text}" for item in phase.items if item.id != "P"]
    found: dict[str, Any] = {"id": phase.id, "title": phase.title, "status": str(phase.status), "items": items}
    more: dict[str, Any] = {name: list(getattr(phase, name)) for name in ("depends", "soft", "touches", "sign_off")}
    more["commit"] = phase.commit
    return found | {name: value for name, value in more.items() if value}


@named
def test_a_plan_is_read_as_its_author_meant_it(folder: Path) -> None:
    plans = {file.stem: read(file.read_bytes()) for file in folder.glob("*.md")}
    assert {
        name: {
            "read_as": plan.read_as,
            "title": plan.title,
            "phases": [described(phase) for phase in plan.phases],
            "warnings": [f"{remark.line}: {remark.text}" for remark in plan.remarks],
        }
        for name, plan in plans.items()
    } == json.loads((folder / "expected.json").read_text(encoding="utf-8"))


# --- statuses are written back in the plan's own way -------------------------------------------------------


def without_place(phase: Phase) -> Phase:
    items = tuple(replace(item, line=0) for item in phase.items)
    return replace(phase, line=0, heading_line=0, items=items)


def changed_lines(old: bytes, new: bytes) -> list[int]:
    """The numbers of the lines that differ; a line that was added counts by its number in the new text."""
    before, after = old.split(b"\n"), new.split(b"\n")
    if len(before) == len(after):
        return [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
    n = next(n for n, (a, b) in enumerate(zip([*before, None], after, strict=False), 1) if a != b)
    assert after[: n - 1] + after[n:] == before
    return [n]


def marked(raw: bytes, before: Plan, phase: Phase, status: Status, commit: str = "abc1234") -> bytes:
    """The plan with this status of the phase, in which nothing else has changed."""
    commit = commit if status is Status.DONE else ""
    text = set_status(raw, path="p.md", phase=phase.id, status=status, commit=commit)
    after = read(text)
    own = after.phase(phase.id)
    assert own is not None
    assert own.status is status
    others = [without_place(p) for p in before.phases if p.id != phase.id]
    assert others == [without_place(p) for p in after.phases if p.id != phase.id]
    kept = {name: getattr(phase, name) for name in ("status", "commit", "text", "blocker", "note")}
    restored = replace(own, **kept)
    assert without_place(restored) == without_place(phase)
    marks = {phase.line, *range(phase.heading_line, phase.heading_line + phase.text.count("\n") + 1)}
    assert set(changed_lines(raw, text)) <= marks
    assert set_status(text, path="p.md", phase=phase.id, status=status, commit=commit) == text
    return text


@named
def test_marking_a_phase_changes_only_its_own_marks(folder: Path) -> None:
    for number, file in enumerate(sorted(folder.glob("*.md"))):
        raw = file.read_bytes()
        mark_each_phase(raw.replace(b"\n", b"\r\n") if number % 2 else raw)


def mark_each_phase(raw: bytes) -> None:
    before = read(raw)
    lines, reading = lay_out(raw, "p.md")
    places = {place.id: place for place in reading.places}
    for phase in before.phases:
        marked(raw, before, phase, Status.TODO)
        text, place = marked(raw, before, phase, Status.DONE), places[phase.id]
        if {spot.slot for spot in place.spots} == {"box"} and place.mark.status is not Status.DONE:
            begins = [lines.byte_offset(spot.at, spot.begin) for spot in place.spots]
            assert all(text[at : at + 1] == b"x" for at in begins), "all its boxes are ticked"
            assert len(text) == len(raw)


# --- nothing breaks the reader ------------------------------------------------------------------------------


def raises_its_own_error_alone(raw: bytes) -> None:
    said = "p.md:"
    try:
        fixed = add_tracker(raw, path="p.md")
        plan = read(fixed)
        other_way(fixed, path="p.md")
        for phase in plan.phases[:3]:
            marked = set_status(fixed, path="p.md", phase=phase.id, status=Status.DONE, commit="abc1234")
            assert read(marked).phases
    except PlanUnreadable as refusal:
        said = str(refusal)
    assert said.startswith("p.md:")
    assert "\n" not in said


def damaged(seed: int) -> bytes:
    chance = random.Random(seed)
    lines = [line for file in chance.sample(FILES, 4) for line in file.read_bytes().splitlines(keepends=True)]
    if seed % 2:
        chance.shuffle(lines)
    raw = bytearray(b"".join(lines))
    for _ in range(seed % 7):
        at = chance.randrange(len(raw))
        raw[at : at + chance.randrange(5)] = chance.choice([b"", b"|", b"[ ]", b"\n", b"```\n", b"\xff", b"# ", b"*"])
    return bytes(raw)


def test_damaged_and_mixed_plans_raise_nothing_but_the_readers_own_error() -> None:
    for seed in range(60):
        raises_its_own_error_alone(damaged(seed))


def count_calls(raw: bytes) -> int:
    """The calls of functions while a plan is read."""
    profile = cProfile.Profile()
    with contextlib.suppress(PlanUnreadable):
        profile.runcall(read, raw)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.matrix
@pytest.mark.parametrize(
    "line",
    [
        *("- [ ] 1.1 a\n", "### Task {}: a\n", "#### 1.{} a\n", "| Phase | Status |\n", "**Tasks:**\n", "```\n", "x"),
        *("- [ ] T{} [US1] in src/a.py, b.py" + " " * 30 + "\n", "[" * 60 + "\n", "**" * 40 + "\n", " " * 70 + "x\n"),
        "### Dependencies\nPhase 1, Phase 2 and all of 3 — not before Phase 4 (x" + " " * 60 + "\n",
        *("## Phase {}: a\nDepends: 1\n- [ ] Phase 1: b\n### C ✅\n", "**Phase {}: a**\n- [ ] b\n", "### {}. a\n- b\n"),
        *(
            "## Done {}\n### Phase {}: a\n",
            "## Lot {}: a\n- [ ] b\n## Rest\n- [ ] c\n",
            "## Week {}\n- [ ] a\n  - [ ] b\n",
            *("## Next {}\n- a\n", "## Word{} 1: a\n- b\n## Word{} 2: a\n- b\n", "## M{} — a\n### b\n- c\n# d\n"),
        ),
    ],
    ids=lambda line: line[:16],
)
def test_twice_the_lines_take_twice_the_calls(line: str) -> None:
    texts = ["".join(line.replace("{}", str(n)) for n in range(2, count)) for count in (20, 80, 160)]
    for begin in ("## Phase 1 — A\n- [ ] a\n", "# Plan\n\n"):
        _, once, twice = (count_calls(f"{begin}{text}".encode()) for text in texts)  # the first compiles
        assert twice < 2.2 * once


@pytest.mark.rest
@pytest.mark.parametrize("section", ["## M{} — a\n- ", "## Word{} 1: a\n## Word{} 2: b\n- "])
def test_a_megabyte_without_boxes_takes_few_calls_a_line(section: str) -> None:
    sections = (f"{section.replace('{}', str(n))}{'x' * 950}\n" for n in range(1_000))
    raw = "".join(("# Plan\n", *sections)).encode()
    assert len(raw) > 900_000
    assert count_calls(raw) < 500 * raw.count(b"\n")


def test_an_ambiguous_plan_has_two_readings_and_a_line_that_decides() -> None:
    raw = (PLANS / "sections" / "12-tasks-inside.md").read_bytes()
    found = other_way(raw, path="p.md")
    assert found is not None
    readings = [(way.name, len(way.places), way.decided_by + 1) for way in found]
    assert readings == [("phase sections", 2, 3), ("Task headings", 3, 5)]
    asked = b"---\nformat: headings\n---\n" + raw
    assert [phase.id for phase in read(asked).phases] == ["1", "2", "3"]
    assert other_way((PLANS / "kiro" / "02-subtasks.md").read_bytes(), path="p.md") is None


def test_the_front_matter_chooses_between_two_words_for_headings() -> None:
    raw = (PLANS / "superpowers" / "04-chunks.md").read_bytes()
    found = other_way(raw, path="p.md")
    assert found is not None
    assert [one.name for one in found] == ["Task headings", "Chunk headings"]
    assert read(b"---\nformat: chunk headings\n---\n" + raw).read_as == "Chunk headings"


def test_more_than_forty_phases_from_boxes_alone_are_a_warning() -> None:
    remarks = [read(b"- [ ] do it\n" * count).remarks for count in (40, 41)]
    assert [[remark.line for remark in found] for found in remarks] == [[], [1]]


@pytest.mark.parametrize("name", ["kiroo", "Kiro"])
def test_the_front_matter_may_name_the_format(name: str) -> None:
    raw = f"---\nformat: {name}\n---\n- [ ] a\n".encode()
    said = "unknown format 'kiroo'" if name == "kiroo" else "the front matter says format: kiro"
    with pytest.raises(PlanUnreadable, match=said):
        read(raw)
