"""Work items, criteria, touched paths and execution of a phase."""

import pytest

from runplan.domain.plan.body import named_paths
from runplan.domain.plan.model import Phase, parse_plan
from tests.support.builders import a_plan
from tests.support.readings import load_readings


def phase(body: str) -> Phase:
    return parse_plan(a_plan({"1": "⬚"}, {"1": body}), path="p.md").phases[0]


@pytest.mark.parametrize(("body", "expected"), load_readings("items.txt"))
def test_items_are_what_the_author_lists(body: str, expected: str) -> None:
    phase = parse_plan(f"## Phase 1 — Title 1\n{body}## Phase 2 — B ✅\ntext\n".encode(), path="p.md").phases[0]
    assert ", ".join(f"{item.id} {item.text}" for item in phase.items) == expected


def test_nested_entries_of_a_task_of_kiro_that_name_files_belong_to_it() -> None:
    text = b"- [ ] 1. A\n- [ ] 2. B\n  - [ ] 2.1 b\n    - why\n    - in `x.py`\n    - _Requirements: 1_\n"
    assert [item.text for item in parse_plan(text, path="p.md").phases[1].items] == ["2.1 b in `x.py`"]


def test_a_phase_without_items_is_one_item_with_its_heading() -> None:
    (item,) = phase("Prose.").items
    assert (item.id, item.text, item.line) == ("P", "Title 1", phase("Prose.").heading_line)


def test_an_item_knows_its_line() -> None:
    text = a_plan({"1": "⬚"}, {"1": "### Work Items\n\n- a\n"})
    (item,) = parse_plan(text, path="p.md").phases[0].items
    assert text.decode().split("\n")[item.line - 1] == "- a"


@pytest.mark.parametrize(
    ("body", "touches"),
    [
        ("Text", ()),
        ("Touches: none", ()),
        ("**Touches:** src/**, tests/x.py", ("src/**", "tests/x.py")),
        ("Touches: `a b.py` and `c.py`.", ("a b.py", "c.py")),
        ("- **Touches**: .github/, *.md", (".github/", "*.md")),
        ("Touches: src/{a,b}.py, x", ("src/{a,b}.py", "x")),
        ("Touches:\n- a.py\n- b.py — the reader\n\n- not this", ("a.py", "b.py")),
        ("### Touches\n\n- `a.py` (new)\n- docs/**\n\n### Design\n\n- c", ("a.py", "docs/**")),
        ("```\nTouches: x\n```", ()),
    ],
)
def test_touched_paths_are_read(body: str, touches: tuple[str, ...]) -> None:
    assert phase(body).touches == touches
    assert phase(body.replace("Touches", "Allows")).allows == touches


@pytest.mark.parametrize(
    ("demand", "is_asked"),
    [
        *((words, True) for words in ("required", "**yes**", "the header", "No pixel moves", "Not before Ann")),
        *((words, False) for words in ("", "none", "No.", "`n/a`", "—", "not required for this", "optional")),
    ],
)
def test_a_sign_off_is_asked_for_whatever_it_is_about(demand: str, is_asked: bool) -> None:
    assert phase(f"Sign-off: {demand}\n").sign_off == ((f"Sign-off: {demand}",) if is_asked else ())


@pytest.mark.parametrize(
    ("body", "host"),
    [
        ("Host: gpu, docker", ("docker", "gpu")),
        ("- **Host:** `GPU`.", ("gpu",)),
        ("Host: a big machine", ()),
        ("Host:", ()),
        ("```\nHost: x\n```", ()),
    ],
)
def test_labels_of_a_host_are_read(body: str, host: tuple[str, ...]) -> None:
    assert phase(body).host == host
    remarks = parse_plan(a_plan({"1": "⬚"}, {"1": body}), path="p.md").remarks
    assert ["names no labels after Host:" in remark.text for remark in remarks] == [True] * (
        "Host:" in body[:7] and not host
    )


UNKNOWN = "runplan does not know {}:, which has no effect; did you mean {}:?"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("Touch: src/**", UNKNOWN.format("Touch", "Touches")),
        ("- **Allowed:** Makefile", UNKNOWN.format("Allowed", "Allows")),
        ("Depend on: 1", UNKNOWN.format("Depend on", "Depends on")),
        ("Goal: x\n\nExecution mode: direct", UNKNOWN.format("Execution mode", "Execution")),
        ("Verifer: `codex`", UNKNOWN.format("Verifer", "Verifier")),
        *((body, "") for body in ("Tests: cover the edge cases", "Tests: `a.py` passes", "Effort: 2 days", "Ex: src")),
        *((body, "") for body in ("Agent: `codex`", "Pull-request: `x`", "Note: `x`", "Cost: low", "Owner: Anna")),
        *((body, "") for body in ("File: `src/a.py`", "Touches: a", "### Design\n\nTouch: the wire")),
        *((body, "") for body in ("```\nTouch: x\n```", "Touch the wire: twice")),
    ],
)
def test_an_unknown_key_at_the_head_of_a_phase_is_named(body: str, said: str) -> None:
    texts = [remark.text for remark in parse_plan(a_plan({"1": "⬚"}, {"1": body}), path="p.md").remarks]
    assert texts == ([f"phase 1: {said}"] if said else [])
    assert parse_plan(a_plan({"1": "✅"}, {"1": body}), path="p.md").remarks == ()


@pytest.mark.parametrize(
    ("body", "kind", "argument"),
    [
        pytest.param("Text", "worktree", "", id="default"),
        pytest.param("### Execution: delegate /draft-plan x.md --fast", "delegate", "/draft-plan x.md --fast", id="D8"),
        pytest.param("Execution: delegate `make land.`", "delegate", "make land.", id="command as code"),
        pytest.param("Execution: `delegate make land`", "delegate", "make land", id="all of it as code"),
        pytest.param("Execution: delegate", None, "", id="no command"),
        pytest.param("### Execution: direct", "direct", "", id="direct"),
        pytest.param("**Execution:** `Worktree`", "worktree", "", id="label"),
        pytest.param("Execution: plan `plans/SUB.md`.", "plan", "plans/SUB.md", id="plan"),
        pytest.param("Execution: plan ./plans/../plans/SUB.md", "plan", "plans/SUB.md", id="plan by another path"),
        pytest.param("Execution: plan ../SUB.md", None, "../SUB.md", id="plan elsewhere"),
        pytest.param("Execution: direct to main", None, "to main", id="more words"),
        pytest.param("Execution: on the moon", None, "the moon", id="unknown"),
        pytest.param("- `### Execution: direct` is recognised", "worktree", "", id="code"),
    ],
)
def test_execution_is_read(body: str, kind: str | None, argument: str) -> None:
    execution = phase(body).execution
    assert (execution.kind, execution.argument) == (kind, argument)


def test_an_unknown_execution_is_an_error_that_names_its_line() -> None:
    text = a_plan({"1": "⬚", "2": "✅"}, {"1": "Execution: on the moon", "2": "Execution: by hand"})
    (remark,) = parse_plan(text, path="p.md").remarks
    assert (text.splitlines()[remark.line - 1], remark.is_error) == (b"Execution: on the moon", True)


FILES = (
    *("src/x.py", "x.py", "setup.py", "main.c", "App.tsx", "app.js", "README.md", "docs/new.bin", "a/b-c/d_e.x1"),
    *(".github/workflows/ci.yml", ".gitlab-ci.yml", "lib/2.0/data.json", "src/mod.test.ts"),
)
NO_FILES = (
    *("os.path", "foo.bar()", "Writer.add(page)", "response.json", "self.cfg", "v1.2", "1.2.3", ".py", "e.g."),
    *("https://example.com/x.py", "example.com/x.html", "--config=x.toml", "-x.py", "Vue.js", "Node.js", "socket.io"),
    *("src/*.py", "src/**", "app/[id]/page.tsx", "{a,b}.py", "<name>.py", "$HOME/x.py", "~/x.py", "/etc/x.ini"),
    *("../x.py", "src/../x.py", "src/", "src/app", "bin/deploy", "and/or", "application/json", "origin/main"),
    *("python tools/x.py", "pytest -q tests/test_x.py", "src/.../x.py", "@scope/pkg.js", "a=b.py", "x.py, y.py"),
)


@pytest.mark.parametrize("file", FILES)
def test_a_path_in_backticks_is_a_file_that_the_item_names(file: str) -> None:
    for place in ("", ":12", ":3-9", "#L4", "::test_y[1]"):
        assert named_paths(f"Change `./{file}{place}` and `{file}`.") == (file,)


def test_other_code_is_no_file_nor_is_a_path_outside_of_backticks() -> None:
    assert [code for code in NO_FILES if named_paths(f"Change `{code}`.")] == []
    assert named_paths("Change src/x.py") == ()
