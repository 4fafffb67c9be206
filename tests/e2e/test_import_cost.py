"""Reading verbs import what is listed here: nearly all of their time goes into that."""

from __future__ import annotations

import pytest

from tests.support.cli import Project, a_project
from tests.support.imports import brought_along, imported

#: Of the standard library; `locale` is what argparse asks for translations.
STANDARD = (
    *("argparse", "bisect", "contextlib", "datetime", "enum", "fcntl", "functools", "gc", "importlib", "json"),
    *("locale", "operator", "pathlib", "re", "select", "sqlite3", "subprocess", "tomllib", "typing"),
)

#: Of our own, for the phases of plans, their runs and their schedules.
STATUS = {
    "": ("errors", "quickclass", "times", "text", "names", "polling"),
    "cli": ("main", "show", "show.status", "show.statustext", "show.aside"),
    "engine": ("context",),
    "daemon": ("singleton",),
    "report": ("views",),
    "landing": ("modes",),
    "git": ("discovery", "command", "trees"),
    "store": ("sqlite", "schedules", "work", "files"),
    "settings": ("load", "places", "config", "keys", "values"),
    "run": ("rows", "progress"),
    "plan": (
        *("model", "scan", "frontmatter", "layout", "table", "marks", "ids", "sections", "body"),
        *("dependencies", "items"),
    ),
}


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose plan was worked, with its settings in a file; only read."""
    project = a_project(tmp_path_factory.mktemp("worked"), "1", "2")
    assert project.start("1", "auto").code == 0
    return project


def test_status_imports_what_is_listed(worked: Project) -> None:
    listed = {".".join(filter(None, ("runplan", package, name))) for package, names in STATUS.items() for name in names}
    packages = {"runplan", *(f"runplan.{package}" for package in STATUS if package)}
    found = {name for name in imported(worked, "status") if name.partition(".")[0] == "runplan"}
    assert found == listed | packages, "take what is not needed off the list, and put nothing on it that can wait"


@pytest.mark.parametrize(
    "words",
    [("status",), ("status", "X", "--json"), ("next",), ("logs", "X"), ("report", "X")],
    ids=" ".join,
)
def test_reading_imports_of_the_standard_library_what_is_listed(worked: Project, words: tuple[str, ...]) -> None:
    strangers = imported(worked, *words) - brought_along(worked, *STANDARD)
    assert {name for name in strangers if name.partition(".")[0] != "runplan"} == set()
