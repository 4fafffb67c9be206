"""Front matter is read, and set without touching anything else."""

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan import tracker
from runplan.domain.plan.model import parse_plan
from runplan.domain.plan.scan import scan_lines
from runplan.domain.plan.tracker import set_completed
from tests.support.builders import a_plan

BLOCK = """---
name: simple
quoted: "value with spaces"
single: 'it''s'
empty: ""
nothing:
status: active  # for now
folded: >-
  one
  two

  three
metadata:
  version: 2026.04.30+abc123
  deep:
    er: 1
last: 'x'
---
name: not me
issue: 42
"""


def get(text: str, key: str) -> str | None:
    field = scan_lines(text.encode(), path="p.md").find_field(key)
    return field.value if field else None


def put(text: str, key: str, value: str) -> str:
    return tracker.put_key(text.encode(), path="p.md", key=key, value=value).decode()


#: What is read of the block; C1, C5, C7, C8 and C17.
VALUES: dict[str, str | None] = {
    "name": "simple",
    "quoted": "value with spaces",
    "single": "it's",
    "folded": "one two three",
    "status": "active",
    "last": "x",
    **dict.fromkeys(("empty", "nothing"), ""),
    **dict.fromkeys(("absent", "version", "issue"), None),
}


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_a_key_is_read(eol: str) -> None:
    assert {key: get(BLOCK.replace("\n", eol), key) for key in VALUES} == VALUES


@pytest.mark.parametrize(
    "text", ["# no front matter\n", "---\nname: unclosed\n", " ---\nname: x\n---\n", "--- \nname: x\n---\n"]
)
def test_text_that_is_no_front_matter_has_no_keys(text: str) -> None:
    """C4"""
    assert get(text, "name") is None
    with pytest.raises(PlanUnreadable, match=r"p\.md:1: there is no front matter"):
        put(text, "name", "x")


def test_front_matter_that_is_never_closed_is_remarked() -> None:
    plan = parse_plan(b"---\nstatus: complete\n" + a_plan({"1": "x"}).replace(b"| x |", "| ⬚ |".encode()), path="p.md")
    assert plan.status == "active"
    assert [remark.line for remark in plan.remarks] == [1]


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        pytest.param("name", "other", "name: simple\nq", "name: other\nq", id="scalar"),
        pytest.param("status", "done", "status: active  # for", "status: done  # for", id="comment-kept"),
        pytest.param("empty", "full", 'empty: ""', "empty: full", id="quoted"),
        pytest.param("nothing", "some", "nothing:\n", "nothing: some\n", id="bare"),
        pytest.param("top", "a", "last: 'x'\n", "last: 'x'\ntop: a\n", id="new-key"),
    ],
)
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_setting_a_key_changes_nothing_else(key: str, value: str, old: str, new: str, eol: str) -> None:
    text, old, new = (part.replace("\n", eol) for part in (BLOCK, old, new))
    changed = put(text, key, value)
    assert changed == text.replace(old, new, 1)
    assert get(changed, key) == value


@pytest.mark.parametrize("key", ["folded", "metadata"])
def test_a_block_is_not_overwritten(key: str) -> None:
    """C11"""
    with pytest.raises(PlanUnreadable, match=r"p\.md:\d+: "):
        put(BLOCK, key, "x")


@pytest.mark.parametrize(
    ("lines", "issues"),
    [
        pytest.param("issue: 42", (42,), id="C14-plain"),
        pytest.param('issue: "#42"', (42,), id="C14-double"),
        pytest.param("issue: '42'", (42,), id="C14-single"),
        pytest.param("issue: 42\nissue: '#7'\nissue: 42", (42, 7), id="C16"),
        pytest.param("issue: none\nissue: -1\nissue: 0\nissue: 1.5\nissue: ²", (), id="no-number"),
    ],
)
def test_issues_are_positive_whole_numbers(lines: str, issues: tuple[int, ...]) -> None:
    assert parse_plan(a_plan({"1": "⬚"}, front=f"---\n{lines}\n---\n"), path="p.md").issues == issues


def test_issues_below_the_front_matter_are_text() -> None:
    """C17"""
    assert parse_plan(a_plan({"1": "⬚"}, front="---\ntitle: T\n---\nissue: 42\n"), path="p.md").issues == ()


WHEN = "2026-01-01T00:00:00Z"
BOTH = f"---\nstatus: complete\ncompleted: {WHEN}\n---\n"
WRITTEN = BOTH.replace("2026", "2025")
WINDOWS = "---\r\ntitle: T\r\nstatus: {}issue: 1\r\n---\r\n"


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        (WINDOWS.format("active # x\r\n"), WINDOWS.format(f"complete # x\r\ncompleted: {WHEN}\r\n")),
        ("---\n---\n", BOTH),
        ("---\nstatus: complete\n---\n", BOTH),
        (WRITTEN, WRITTEN),
        ("---\ncompleted: soon\nstatus:\n---\n", f"---\ncompleted: {WHEN}\nstatus: complete\n---\n"),
        ("", ""),
    ],
    ids=["replaced", "added", "half-written", "already", "both-there", "no-front-matter"],
)
def test_completion_is_written_whole(front: str, expected: str) -> None:
    plan = a_plan({"1": "✅"})
    done = set_completed(front.encode() + plan, path="p.md", completed=WHEN)
    assert done == expected.encode() + plan
    assert parse_plan(done, path="p.md").complete


def test_a_complete_plan_with_phases_left_is_remarked() -> None:
    plan = parse_plan(a_plan({"1": "✅", "2": "⬚"}, front="---\nstatus: complete\n---\n"), path="p.md")
    assert [remark.text for remark in plan.remarks] == ["the plan says complete, but not done: 2"]
