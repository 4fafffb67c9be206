"""For any plan: setting a status changes exactly that, in its own line or boxes; and nothing breaks the parser."""

import re

from hypothesis import given, strategies as st

from runplan.domain.plan.model import Phase, Plan, Status, parse_plan
from runplan.domain.plan.tracker import set_completed
from tests.unit.test_plan_corpus import marked, raises_its_own_error_alone

IDS = ["1", "2", "3", "4a", "4b", "1A", "3b-i", "3b-ii", "P1.A", "A", "B", "10", "1.5"]
CELLS = [*"⬚⬜✅🟡", "⬜ Ready", "", "✅ Done", "✅ Done (`4a6075d`)", "🔴 Blocked", "In Progress", "what?", "[x]"]
HEADERS = ["| Phase | Status | Commit | Notes |", "|Phase|Status|Commit|", "Phase | Status | Commit"]
COMMITS = ["", " ", "`4a6075d`", "02e0f6b", "(squash)", "`a` + `b`", "N/A", "x \\| y"]
SEPARATORS = [" — ", " -- ", ": ", " – ", " - ", ". "]
NOISE = [
    ["Some text.  "],
    ["lone \r return", ""],
    ["```markdown", "## Phase 1 — fenced", "| 1 | ✅ | |", "```"],
    ["  ```bash", "  # indented", "  ```"],
    ["| File | Status |", "|---|---|", "| a.py | ✅ |"],
    ["- [ ] an open box", "- [x] a ticked box"],
    ["### Work Items", "", "- [ ] one", "- two"],
    ["### Acceptance Criteria", "", "1. holds"],
    ["\ttabs\tand trailing blanks \t "],
    ["Glyphs ✅ ⬚ 🟡 in prose | with pipes |"],
    [""],
]

ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=6, unique_by=str.casefold)
noise = st.lists(st.sampled_from(NOISE), max_size=4).map(lambda parts: [line for part in parts for line in part])
titles = st.sampled_from(["One thing", "a \\| b", "`code` — and dash", "Ünïcode ✅", "x"])
blanks = st.sampled_from(["", " ", "   "])


@st.composite
def rows(draw: st.DrawFn, id_: str) -> str:
    """A tracker row, as neat or odd as people write them."""
    name = id_ + draw(st.sampled_from(SEPARATORS)) + draw(titles) if draw(st.booleans()) else id_
    cells = [name, draw(st.sampled_from(CELLS)), draw(st.sampled_from(COMMITS))]
    cells += draw(st.lists(st.sampled_from(["", " ", "note", "✅"]), max_size=4))
    padded = [draw(blanks) + cell + draw(blanks) for cell in cells]
    lead, trail = draw(st.sampled_from(["| ", "|", "  |", ""])), draw(st.sampled_from(["|", " |  ", "| end"]))
    return lead + "|".join(padded) + trail


@st.composite
def tracker_plans(draw: st.DrawFn) -> list[str]:
    names = draw(ids)
    lines = ["# Plan: generated", *draw(noise), "## Progress Tracker", ""]
    lines += [draw(st.sampled_from(HEADERS))]
    lines += [draw(st.sampled_from(["|---|---|---|---|", "| :-- | :-: | --: |", "--|--|--"]))]
    lines += [draw(rows(id_)) for id_ in names] + ["", *draw(noise)]
    for id_ in draw(st.permutations(names)):
        lines += [f"## Phase {id_}{draw(st.sampled_from(SEPARATORS))}{draw(titles)}", *draw(noise)]
    return [*lines, "## Appendix", *draw(noise)]


@st.composite
def section_plans(draw: st.DrawFn) -> list[str]:
    lines = ["# Plan: generated", ""]
    for n, id_ in enumerate(draw(ids)):
        label = draw(st.sampled_from(["**Status:** ", "**Status:**", "- **Status**: ", "**status:**   "]))
        stated = [label + draw(st.sampled_from(CELLS)) + draw(blanks)] if n == 0 or draw(st.booleans()) else []
        lines += [f"## Phase {id_} — {draw(titles)}", *draw(noise), *stated, *draw(noise)]
    return lines


@st.composite
def checklists(draw: st.DrawFn) -> list[str]:
    lines = draw(st.sampled_from([[], ["# Title", "", "Text."]]))[:]
    for id_ in draw(ids):
        mark, box = draw(st.sampled_from(["-", "*", "+", "1."])), draw(st.sampled_from(" xX-"))
        note = draw(st.sampled_from(["", " (4a6075d)", " (`4a6075d`, note)", " (f)", "  "]))
        more = draw(st.sampled_from([[], ["  more", "", "  text"]]))
        lines += [f"{mark} [{box}] Phase {id_} — {draw(titles)}{note}", *more]
    return lines


@st.composite
def written(draw: st.DrawFn, lines: list[str]) -> bytes:
    """The lines as a file: line ends mixed, with or without a byte order mark, front matter and a last line end."""
    front = draw(st.sampled_from([[], ["---", "title: T", "status: active # x", "issue: '#4'", "---"]]))
    eol = st.sampled_from(["\n", "\r\n"])
    text = "".join(line + draw(eol) for line in [*front, *lines])
    text = text.rstrip("\r\n") if draw(st.booleans()) else text
    return (draw(st.sampled_from(["", "\ufeff"])) + text).encode()


any_plan = st.one_of(tracker_plans(), section_plans(), checklists()).flatmap(written)


@given(any_plan, st.data())
def test_setting_a_status_changes_that_status_and_nothing_else(raw: bytes, data: st.DataObject) -> None:
    before = parse_plan(raw, path="p.md")
    phase = data.draw(st.sampled_from(before.phases))
    status = data.draw(st.sampled_from([Status.DONE, Status.TODO]))
    commit = data.draw(st.sampled_from(["abc1234", "0" * 40])) if status is Status.DONE else ""
    text = marked(raw, before, phase, status, commit)
    only_the_status_differs(raw, text, phase, before)
    after = parse_plan(text, path="p.md")
    changed = after.phase(phase.id)
    assert changed is not None
    line = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")[phase.line - 1]
    in_box = re.match(rb"[ \t]*\S+ \[", line) is not None  # a box has no place for a commit
    assert changed.commit == commit or not commit or in_box
    known = ("title", "status", "issues", "format")
    assert [getattr(after, name) for name in known] == [getattr(before, name) for name in known]


def only_the_status_differs(raw: bytes, text: bytes, phase: Phase, plan: Plan) -> None:
    old, new = raw.split(b"\n"), text.split(b"\n")
    if len(new) == len(old):
        lines = {item.line for item in phase.items}
        stating = lines if phase.line in lines else {phase.line}  # boxes may state the status together
        assert {n for n, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b} <= stating
        return
    assert plan.format == "sections"
    added = new.pop(phase.heading_line)
    assert added.startswith(b"**Status:** ")
    assert b"\n".join(new).rstrip(b"\r") == raw.rstrip(b"\r")


@given(any_plan)
def test_phase_text_is_the_file_byte_for_byte(raw: bytes) -> None:
    plan = parse_plan(raw, path="p.md")
    for phase in plan.phases:
        assert phase.text.encode() in raw
    if plan.format != "checklist":
        in_order = sorted(plan.phases, key=lambda phase: phase.heading_line)
        first = raw.index(in_order[0].text.encode())
        joined = b"".join(phase.text.encode() for phase in in_order)
        assert raw[first:].startswith(joined)


@given(any_plan)
def test_completion_touches_the_front_matter_only(raw: bytes) -> None:
    text = set_completed(raw, path="p.md", completed="2026-01-01T00:00:00Z")
    if not raw.removeprefix(b"\xef\xbb\xbf").startswith(b"---"):
        assert text == raw
        return
    assert parse_plan(text, path="p.md").complete
    assert len(text.split(b"\n")) == len(raw.split(b"\n")) + 1
    assert text[text.index(b"issue:") :] == raw[raw.index(b"issue:") :]


FRAGMENTS = st.sampled_from(
    [line for part in NOISE for line in part]
    + ["---", "status: x", "## Progress Tracker", "| Phase | Status | Commit |", "|--|--|", "| 1 | ⬚ | |", "| 2 |"]
    + [
        *("## Phase 1 — A", "## Phase 2", "### Phase 3: C", "**Status:** ⬚", "- [ ] Phase 1 — a", "Depends: 1"),
        *("Depends: 2-1",),
    ]
    + [
        *("### Dependencies", "Phase 2.", "Phases 1–2 (", "Touches: {", "Execution: ?", "```", "|", "\\|"),
        *("\x0b", "\u2028"),
    ]
)


@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=20)), max_size=30), st.sampled_from(["\n", "\r\n", "\r"]))
def test_no_text_makes_the_parser_raise_anything_but_its_own_error(lines: list[str], eol: str) -> None:
    raises_its_own_error_alone(eol.join(lines).encode(errors="replace"))
