"""The doctor's judgement: each fault by name, with the remedy that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from runplan.agents.sandbox import Obstacle
from runplan.checks.testinfra import Infrastructure
from runplan.gitfacts import Identity
from runplan.ops.doctor import Check, check
from runplan.settings.config import Layer, Settings
from runplan.settings.facts import Account, Bench, Cast, Facts, Place
from tests.support.settings import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

HEALTHY = Facts(
    root="/home/uma/app",
    git_version=(2, 39, 5),
    branches=("main", "next"),
    default_branch="main",
    identity=Identity(name="Uma", email="uma@example.org"),
    signs=False,
    remotes=("origin",),
    known=("claude",),
    installed=("claude",),
    tests=Infrastructure(found="Makefile", command="make test"),
)
BENCH = Bench()
PLACE = Place(path="/home/uma/worktrees", writable=True)
CAST = (Cast(role="implementer", agent="claude", program="claude", found=True),)


def settings(**values: dict[str, str]) -> Settings:
    return settle([Layer(origin="runplan.toml", values=values)]).settings


TESTED = settings(tests={"command": "make test"})


def test_an_agent_is_shown_with_its_login_address_model_and_bill() -> None:
    account = Account(login="A_KEY", address="https://gw", model="big", bill="the account of A_KEY, by use")
    cast = Cast(role="implementer", agent="claude", program="claude", found=True, account=account)
    (shown,) = [each for each in check(HEALTHY, TESTED, place=PLACE, cast=[cast]) if each.name == "implementer"]
    told = "login A_KEY; address https://gw; model big; billed to the account of A_KEY, by use"
    assert (shown.ok, shown.detail) == (True, f"claude (claude); {told}")


def test_an_agent_without_a_model_that_needs_one_is_a_fault() -> None:
    account = Account(login="", address="", model="", bill="", lacks="has no model")
    (fault,) = faults(cast=[Cast(role="verifier", agent="mini", program="mini", found=True, account=account)])
    assert (fault.name, fault.detail) == ("verifier", "mini has no model")
    assert fault.remedy == 'set model = "..." under [agents.mini] in runplan.toml'


def test_what_else_an_agent_lacks_has_its_own_remedy() -> None:
    account = Account(login="K", address="", model="", bill="", lacks="needs K", remedy="set K in this terminal")
    (fault,) = faults(cast=[Cast(role="verifier", agent="codex", program="codex", found=True, account=account)])
    assert (fault.detail, fault.remedy) == ("codex needs K", "set K in this terminal")


def faults(
    facts: Facts = HEALTHY,
    settings: Settings = TESTED,
    *,
    place: Place = PLACE,
    cast: Sequence[Cast] = CAST,
    unusable: str = "",
    leftovers: Sequence[str] = (),
    bench: Bench = BENCH,
    refused: str = "",
) -> list[Check]:
    found = check(
        facts, settings, place=place, cast=cast, bench=bench, unusable=unusable, leftovers=leftovers, refused=refused
    )
    assert all(bool(each.remedy) is not each.ok for each in found)
    return [each for each in found if not each.ok]


def test_a_healthy_place_has_no_fault_and_every_check_says_what_it_saw() -> None:
    assert faults() == []
    names = [each.name for each in check(HEALTHY, TESTED, place=PLACE, cast=CAST)]
    assert names[:5] == ["git", "settings", "identity", "target", "worktrees"]
    assert names[5:] == ["implementer", "processes", "sandbox", "tests", "setup", "leftovers", "start"]


def test_the_oldest_git_that_can_merge_without_a_checkout_is_enough() -> None:
    assert faults(replace(HEALTHY, git_version=(2, 38))) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            replace(HEALTHY, git_version=(2, 37, 9)),
            Check(name="git", ok=False, detail="version 2.37.9", remedy="install git 2.38 or newer"),
        ),
        (
            replace(HEALTHY, identity=None),
            Check(
                name="identity",
                ok=False,
                detail="git does not know who you are",
                remedy='git config user.name "Your Name" && git config user.email you@example.org',
            ),
        ),
        (
            replace(HEALTHY, branches=()),
            Check(
                name="target",
                ok=False,
                detail="the repository has no commit yet",
                remedy="git commit --allow-empty -m Start",
            ),
        ),
        (
            replace(HEALTHY, branches=("master",), default_branch="master"),
            Check(
                name="target",
                ok=False,
                detail="there is no branch main",
                remedy='set run.target = "master" in runplan.toml, or make it: git branch main',
            ),
        ),
    ],
)
def test_a_repository_that_cannot_be_worked_in_is_named_with_its_remedy(facts: Facts, expected: Check) -> None:
    assert faults(facts) == [expected]


def test_tests_without_a_command_are_a_fault() -> None:
    """N7: the command is never guessed, only suggested."""
    (fault,) = faults(settings=settings())
    assert fault.detail == "there are tests (Makefile) but no test command"
    assert fault.remedy == 'add to runplan.toml, under [tests]: command = "make test"'


def test_no_tests_at_all_is_no_fault_but_said() -> None:
    """N8."""
    bare = replace(HEALTHY, tests=Infrastructure(found="", command=""))
    assert faults(bare, settings()) == []
    assert "gates are skipped" in check(bare, settings(), place=PLACE, cast=CAST)[-4].detail


def test_an_agent_is_named_with_its_program_and_version() -> None:
    cast = Cast(role="verifier", agent="judge", program="codex", found=True, version="0.166.0")
    told = {each.name: each.detail for each in check(HEALTHY, TESTED, place=PLACE, cast=[cast])}
    assert told["verifier"] == "judge (codex 0.166.0)"


def test_a_missing_agent_is_named_with_its_role() -> None:
    (fault,) = faults(cast=[Cast(role="verifier", agent="local", program="tools/agent", found=False)])
    assert fault.name == "verifier"
    assert fault.detail == "local: tools/agent was not found"
    assert fault.remedy == "install tools/agent, or name another agent: agents.verifier"


def test_a_worktree_root_that_cannot_be_written_is_a_fault() -> None:
    (fault,) = faults(place=Place(path="/nope", writable=False))
    assert (fault.name, fault.detail) == ("worktrees", "/nope cannot be written")


def test_settings_that_cannot_be_read_are_a_fault() -> None:
    (fault,) = faults(unusable="runplan.toml:3: invalid TOML: Invalid value")
    assert fault.detail == "runplan.toml:3: invalid TOML: Invalid value"


def test_leftovers_are_counted_and_no_fault_since_they_keep_no_run_from_starting() -> None:
    left = [f"wt-{number}" for number in range(7)]
    assert faults(leftovers=left) == []
    found = {each.name: each.detail for each in check(HEALTHY, TESTED, place=PLACE, cast=CAST, leftovers=left)}
    assert found["leftovers"] == "wt-0, wt-1, wt-2, wt-3, wt-4 and 2 more; remove them: runplan gc"


def test_an_agent_without_key_and_login_is_a_fault() -> None:
    cast = Cast(role="verifier", agent="codex", program="codex", found=True, lacks="no key and no login was found")
    (fault,) = faults(cast=[cast])
    assert (fault.name, fault.detail) == ("verifier", "codex: no key and no login was found")
    assert fault.remedy == "run codex once and sign in, or set its key in this terminal"


def test_a_missing_script_is_not_a_program_to_install() -> None:
    cast = Cast(role="verifier", agent="judge", program="judge.toml", found=False, file=True)
    (fault,) = faults(cast=[cast])
    assert (fault.detail, fault.remedy) == (
        "judge: there is no file judge.toml",
        "write it, or name another agent: agents.verifier",
    )


def test_a_test_command_that_cannot_run_is_a_fault() -> None:
    (fault,) = faults(bench=replace(BENCH, missing="Makefile"))
    assert (fault.name, fault.detail) == ("tests", "`make test` needs Makefile, which main does not have")
    (fault,) = faults(bench=replace(BENCH, program="make"))
    assert (fault.name, fault.detail) == ("tests", "`make test`: make was not found")


def test_a_fresh_worktree_that_needs_setup_is_a_fault_until_there_is_one() -> None:
    bench = replace(BENCH, needs=("node_modules", "npm ci"))
    (fault,) = faults(bench=bench)
    assert (fault.name, fault.detail) == ("setup", "a fresh worktree has no node_modules, and run.setup is empty")
    assert fault.remedy == 'add to runplan.toml, under [run]: setup = "npm ci"'
    assert faults(settings=settings(tests={"command": "make test"}, run={"setup": "npm ci"}), bench=bench) == []


def test_what_start_would_refuse_is_a_fault_also_when_all_else_is_well() -> None:
    (fault,) = faults(refused="landing by pr is not in this version of runplan; use cherry-pick or direct")
    assert (fault.name, fault.detail, fault.remedy) == (
        *("start", "landing by pr is not in this version of runplan"),
        "use cherry-pick or direct",
    )
    assert [each.name for each in faults(replace(HEALTHY, identity=None), refused="the same")] == ["identity"]


def test_signing_is_mentioned_where_it_is_wanted() -> None:
    identity = check(replace(HEALTHY, signs=True), TESTED, place=PLACE, cast=CAST)[2]
    assert identity.detail == "Uma <uma@example.org>, commits are signed"


@pytest.mark.parametrize(
    ("mode", "why", "ok", "told"),
    [
        ("auto", "", True, "bubblewrap works"),
        ("none", "", True, 'bubblewrap works, but is switched off: agents.sandbox = "none"'),
        ("auto", "no", True, "bubblewrap does not work: no; agents run without it. To get it: apt install it"),
        ("none", "no", True, "bubblewrap does not work: no; agents run without it. To get it: apt install it"),
        ("bwrap", "no", False, "bubblewrap does not work: no"),
    ],
)
def test_it_says_whether_the_sandbox_works_and_how_to_get_it(mode: str, why: str, ok: bool, told: str) -> None:
    settings = replace(TESTED, agents=replace(TESTED.agents, sandbox=mode))
    obstacle = Obstacle(why=why, remedy="apt install it") if why else None
    found = check(HEALTHY, settings, place=PLACE, cast=CAST, obstacle=obstacle)
    (line,) = [each for each in found if each.name == "sandbox"]
    assert (line.ok, line.detail) == (ok, told)
    assert ok or line.remedy == 'apt install it, or set agents.sandbox = "auto"'


@pytest.mark.parametrize(
    ("cgroup", "told"),
    [
        ("/sys/fs/cgroup/user.slice", "each dispatch has a control group of its own, below /sys/fs/cgroup/user.slice"),
        ("", "no control group: what an agent leaves is found by its parents and its mark"),
    ],
    ids=["used", "unused"],
)
def test_it_says_whether_control_groups_are_used_and_finds_no_fault_in_either(cgroup: str, told: str) -> None:
    found = check(HEALTHY, TESTED, place=PLACE, cast=CAST, cgroup=cgroup)
    assert [(each.ok, each.detail) for each in found if each.name == "processes"] == [(True, told)]
