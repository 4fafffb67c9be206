"""Names of plans, branches, worktrees and reports: always valid, never shared by two plans."""

import re
from pathlib import Path

import pytest

from runplan.domain.errors import UsageError
from runplan.domain.names import (
    branch,
    mark,
    plan_key,
    report_path,
    repository_id,
    run_of,
    sanitise,
    slug,
    valid_ref,
    worktree_name,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("plans/THERMAL_DOMAIN.md", "thermal-domain", id="B1"),
        pytest.param("plans/ADD_FILTER_BLOCK.md", "add-filter-block", id="B2a"),
        pytest.param("plans/my.plan.md", "my-plan", id="B14a"),
        pytest.param("plans/_x.md", "x", id="B14b"),
        pytest.param("plans/X.md", "x", id="B14d"),
        pytest.param("plans/my plan (2).MD", "my-plan-2", id="blanks"),
        pytest.param("plans/notes", "notes", id="no-suffix"),
        pytest.param("plans/plan.md", "plan", id="file-plan"),
        pytest.param("conductor/tracks/search_20260101/plan.md", "search-20260101", id="track"),
        pytest.param("backlog/tasks", "backlog", id="task-folder"),
        pytest.param(".taskmaster/tasks/tasks.json", "tasks-json", id="json"),
    ],
)
def test_a_slug_is_made_from_the_file_name(path: str, expected: str) -> None:
    assert slug(path) == expected


@pytest.mark.parametrize("name", ["план", "___", "計画", "a" * 300, "...", "x/.md"])
def test_a_slug_is_valid_for_any_name(name: str) -> None:
    """A name that is empty or too long gets a hash."""
    made = slug(f"plans/{name}.md")
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", made)
    assert len(made) <= 100
    assert made != slug("plans/другой.md")


def test_two_plans_of_one_name_have_different_keys() -> None:
    """B16: each carries a short hash of its path."""
    known = ["a/X.md", "b/X.md", "plans/Y.md"]
    a, b = plan_key("a/X.md", known), plan_key("b/X.md", known)
    assert a != b
    assert all(re.fullmatch(r"x-[0-9a-f]{8}", key) for key in (a, b))
    assert plan_key("plans/Y.md", known) == "y"


def test_a_plan_alone_keeps_its_slug_however_its_path_is_written() -> None:
    assert plan_key("plans/X.md", ["plans/X.md", "./plans//X.md"]) == "x"


def test_names_that_only_differ_in_writing_count_as_one() -> None:
    assert plan_key("plans/MY_PLAN.md", ["plans/my plan.md"]) != "my-plan"


@pytest.mark.parametrize(
    ("prefix", "slug", "phase", "expected"),
    [
        ("runplan/", "x", "3b-i", "runplan/x/3b-i"),
        ("runplan/", "x", "P1.A", "runplan/x/P1.A"),
        pytest.param("fix/", "thermal-domain", "1", "fix/thermal-domain/1", id="B4"),
        ("", "thermal-domain", "1", "thermal-domain/1"),
    ],
)
def test_a_branch_is_prefix_slug_and_phase(prefix: str, slug: str, phase: str, expected: str) -> None:
    assert branch(prefix, slug, phase) == expected


@pytest.mark.parametrize("phase", ["1 a", "1..2", ".1", "1.", "a/b", "x.lock", "-1", "@{", "ä", "1~2", "HEAD"])
def test_any_phase_id_gives_a_valid_branch_of_its_own(phase: str) -> None:
    made = branch("runplan/", "x", phase)
    assert valid_ref(made)
    assert made.count("/") == 2
    assert made != branch("runplan/", "x", phase + "!")


REFUSED = (
    *("", "a b", "a..b", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a//b", "/a", "a/", "a~1", "a^", "a:b"),
    *("a?", "a*", "a[", "a\\b", "@", "HEAD", "-a", "a@{b", "a\x7f", "a\n"),
)


def test_a_branch_name_is_valid_as_git_says() -> None:
    assert [name for name in REFUSED if valid_ref(name)] == []
    assert all(map(valid_ref, ("main", "runplan/x/P1.A", "a@b", "feature/ä", "a-b_c")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("has space*?[abc]", "has_space___abc_", id="B7"),
        pytest.param("feat/x@y", "feat_x_y", id="B8a"),
        pytest.param("run-plan.my plan", "run-plan.my_plan", id="B8b"),
        pytest.param("a\nb", "a_b", id="B8c"),
        pytest.param("a" * 200, "a" * 128, id="B10"),
        pytest.param("run-plan.a.b.c", "run-plan.a.b.c", id="B13"),
    ],
)
def test_sanitise_leaves_only_portable_characters(text: str, expected: str) -> None:
    assert sanitise(text) == expected


def test_an_empty_name_is_refused() -> None:
    """B11."""
    with pytest.raises(UsageError, match="must not be empty"):
        sanitise("")


def test_the_report_lies_under_the_plans_slug() -> None:
    assert report_path("reports", "thermal-domain") == "reports/plan-thermal-domain.md"
    assert report_path("docs/reports/", "x") == "docs/reports/plan-x.md"


def test_repositories_of_the_same_name_have_different_worktrees() -> None:
    one, two = worktree_name("/home/a/my app", "x"), worktree_name("/home/b/my app", "x")
    assert one != two
    assert one.startswith("my_app-x-")
    assert worktree_name("/", "x")


def test_the_mark_of_a_lane_names_its_run() -> None:
    assert run_of(mark("r1", "2")) == run_of(mark("r1", "")) == "r1"


def test_a_repository_has_its_own_id() -> None:
    one, other = repository_id(Path("/srv/a/.git")), repository_id(Path("/srv/b/.git"))
    assert one == repository_id(Path("/srv/a/.git")) != other
    assert re.fullmatch("[0-9a-f]{12}", one)
