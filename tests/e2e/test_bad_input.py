"""Bad input is refused in one line that names the place and the remedy, and changes nothing."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, set_up
from tests.support.repos import init_repo

START = ("start", "X", "auto", "--foreground")
NO_PROGRAM = '[agents]\nimplementer = "a"\nverifier = "a"\n[agents.a]\nkind = "command"\nargv = ["no-such-program"]\n'
PHASES = ("1",)


@dataclass(frozen=True, kw_only=True)
class Bad:
    """An input and its refusal."""

    says: str  #: stands in the one line on standard error
    code: int = 2
    words: tuple[str, ...] = START
    make: Callable[[Project], object] = lambda _: None
    env: dict[str, str] = field(default_factory=dict)
    place: Callable[[Project], Path] = lambda project: project.path


def plan(text: str) -> Callable[[Project], object]:
    return lambda project: set_up(project, plan=text)


def settings(text: str) -> Callable[[Project], object]:
    return lambda project: set_up(project, settings=text)


def plan_bytes(content: bytes) -> Callable[[Project], object]:
    def write(project: Project) -> None:
        (project.path / "plans/X.md").write_bytes(content)
        project.repo.commit("Set up")

    return write


def start(*words: str) -> tuple[str, ...]:
    return ("start", *words, "--foreground")


def sh(script: str) -> Callable[[Project], object]:
    return lambda project: project.repo.sh(script)


AHEAD = "git checkout -q -b runplan/x/1; echo mine >mine.txt; git add .; git commit -qm Mine; git checkout -q main"
LINK = "ln -s X.md plans/LINK.md; git add .; git commit -qm Link"


PLANS = {
    "misspelled plan": Bad(
        code=3,
        words=("check", "plans/GREATING.md"),
        make=lambda project: project.commit_file("plans/GREETING.md", a_plan("1")),
        says="neither as a path nor under plans/; did you mean plans/GREETING.md?",
    ),
    "check of a missing file without a repository": Bad(
        code=3, words=("check", "NO"), place=lambda project: project.home, says="NO: no such plan file; "
    ),
    "ambiguous plan": Bad(
        code=3,
        words=start("old"),
        make=lambda project: project.repo.commit(
            "Set up", **{"plans/old-a.md": a_plan("1"), "plans/old-b.md": a_plan("1")}
        ),
        says="old may be plans/old-a.md or plans/old-b.md; say which",
    ),
    "directory": Bad(words=start("plans"), says="plans is a directory; name the plan file in it"),
    "binary file": Bad(
        make=plan_bytes(b"\n" + bytes(range(256))), says="plans/X.md:2: this is no UTF-8 text; save the plan as UTF-8"
    ),
    "done in its companion": Bad(
        make=lambda project: project.repo.commit(
            "Set up",
            **{
                "plans/X.md": f"See `X_PROGRESS_AND_NEXT_STEPS.md`.\n\n{a_plan('1', front='')}",
                "plans/X_PROGRESS_AND_NEXT_STEPS.md": "# Progress\n\n- ✅ Phase 1: Step 1\n",
            },
        ),
        says="plans/X_PROGRESS_AND_NEXT_STEPS.md:3 says that phase 1 is done, plans/X.md does not; mark it done there "
        "and commit it, or have it worked: runplan start plans/X.md 1\n",
    ),
    "symbolic link": Bad(
        words=start("plans/LINK.md"),
        make=sh(LINK),
        says="plans/LINK.md on main is a symbolic link to X.md; name the file itself: runplan start plans/X.md\n",
    ),
    "not committed": Bad(
        words=start("N"),
        make=lambda project: project.repo.write("plans/N.md", a_plan("1")),
        says="plan-not-committed: plans/N.md is not committed on main; run: git add plans/N.md && git commit",
    ),
    "a line break in the name": Bad(
        words=start("plans/a\nb.md"),
        make=lambda project: project.repo.commit("Set up", **{"plans/a\nb.md": a_plan("1")}),
        says="plans/a\\nb.md: the name has control characters or bytes that are not UTF-8; rename the file",
    ),
    "edited": Bad(
        make=lambda project: project.repo.write("plans/X.md", a_plan("1", "2")),
        says="plan-not-committed: plans/X.md in the checkout differs from main; run: git add",
    ),
}

SETTINGS = {
    "unknown key": Bad(
        make=settings('[run]\nlandng = "pr"\n'), says="runplan.toml: [run] landng: unknown key; did you mean 'landing'?"
    ),
    "target": Bad(
        make=settings('[run]\ntarget = "trunk"\n'),
        says="the target branch trunk does not exist; set run.target to one of: main",
    ),
    "missing agent": Bad(
        make=lambda project: project.commit_file("runplan.toml", NO_PROGRAM),
        says="agent-missing: agents.implementer: no-such-program is not installed or not on PATH; install it, or name",
    ),
    "tests without a command": Bad(
        make=sh("echo '[pytest]' >pytest.ini; git add .; git commit -qm Tests"),
        says="the repository has tests (pytest.ini) but tests.command is empty; set it in runplan.toml under [tests]",
    ),
    "worktrees": Bad(code=5, make=settings('[run]\nworktrees = "/proc/none"\n'), says="/proc/none cannot be created: "),
}

REPOSITORIES = {
    "reports is a link": Bad(
        make=sh("ln -s plans reports; git add .; git commit -qm Link"),
        says="reports is a symbolic link on the target, so reports/plan-x.md cannot be written; make it a plain file",
    ),
    "target is a symbolic ref": Bad(
        make=sh("git branch -m trunk; git symbolic-ref refs/heads/main refs/heads/trunk"),
        says="the target branch main is a symbolic ref to trunk; set run.target to trunk",
    ),
    "a line break in the path": Bad(
        place=lambda project: init_repo(project.home / "a\nb").path,
        says="runplan cannot work in a path with control characters or with bytes that are not UTF-8: ",
    ),
    "empty": Bad(
        place=lambda project: init_repo(project.home / "empty").path,
        says="has no commit yet; make one: git commit --allow-empty -m Start",
    ),
    "no identity": Bad(
        make=sh("git config --remove-section user"), says="git does not know who you are; run: git config user.name"
    ),
    "prefix taken": Bad(
        make=sh("git branch runplan"), says="the branch runplan blocks branches under runplan/; set run.branch_prefix"
    ),
    "foreign branch": Bad(
        make=sh(AHEAD), says="the branch runplan/x/1 exists, and runplan did not make it; look at it"
    ),
    "journal in the way": Bad(code=5, make=sh(": >.git/runplan"), says=".git/runplan cannot be created: File exists"),
}

WORDS = {
    "verb": Bad(words=("strat", "X"), says="strat: no such verb; did you mean start?"),
    "plan without a planner": Bad(
        words=("plan", "a goal"), says="agent-missing: agents.planner: claude is not installed or not on PATH"
    ),
    "unknown planner": Bad(words=("plan", "a goal", "--agent", "clod"), says="--agent clod: no such agent; there are:"),
    "no goal": Bad(words=("plan",), says="say what the plan is for"),
    "empty goal": Bad(words=("plan", " "), says="the goal is empty"),
    "empty option": Bad(words=("approve", "X", "--tree", ""), says="approve: --tree is empty; is a variable not set?"),
    "empty word": Bad(words=("stop", ""), says="stop: a word is empty; is a variable not set?"),
    "goal and file": Bad(words=("plan", "x", "--file", "agent.toml"), says="a goal and --file: a plan is written for"),
    "rounds": Bad(words=("plan", "x", "--rounds", "5"), says="--rounds 5: must be 1 to 4"),
    "a checklist to revise": Bad(
        make=lambda project: project.commit_file("plans/C.md", "# C\n\n- [ ] Phase 1 — a\n- [ ] Phase 2 — b\n"),
        words=("plan", "--revise", "C", "--agent", "robot"),
        says="agents revise plans with phase sections, not a",
    ),
    "a plan that exists": Bad(
        words=("plan", "x", "--out", "plans/X.md", "--agent", "robot"), says="plans/X.md exists already"
    ),
    "nothing to edit": Bad(code=3, words=("edit", "X"), says="no proposal of plans/X.md waits for you"),
    "option": Bad(
        words=("start", "X", "--forground"), says="start: --forground: no such option; did you mean --foreground?"
    ),
    "no forge": Bad(
        words=start("X", "pr"), make=sh("git remote add origin /srv/app.git"), says="needs a repository on GitHub"
    ),
    "every": Bad(words=start("X", "every", "4h"), says="schedules need the daemon; leave out --foreground"),
    "nothing to pause": Bad(code=3, words=("pause", "X"), says="plans/X.md has no daemon run and no schedule"),
    "nothing to report": Bad(
        code=3, words=("report", "X"), says="nothing to report of plans/X.md yet; start it: runplan start plans/X.md\n"
    ),
    "blank words of a rejection": Bad(words=("reject", "X", "-m", " \n"), says="reject: the text is empty\n"),
    "nothing to explain": Bad(code=3, words=("explain", "X"), says="no run of plans/X.md is recorded here"),
}


@pytest.mark.matrix
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(bad, id=f"{kind}: {name}")
        for kind, table in (("plan", PLANS), ("settings", SETTINGS), ("repository", REPOSITORIES), ("words", WORDS))
        for name, bad in table.items()
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(project: Project, bad: Bad) -> None:
    bad.make(project)
    place = bad.place(project)
    before = everything(project)
    ran = project.runplan_in(place, *bad.words, **bad.env)
    assert (ran.code, ran.out) == (bad.code, ""), ran.err
    assert ran.err.startswith("runplan: ")
    assert bad.says in ran.err
    assert ran.err.count("\n") == 1
    assert everything(project) == before


def test_a_file_with_an_unprintable_name_under_plans_is_ignored(project: Project) -> None:
    odd = {"plans/\udcff.md": a_plan("1"), "plans/a\nb.md": a_plan("1")}
    project.repo.commit("Set up", **odd)
    assert project.start("auto").code == 0
    ran = project.runplan("status", "--json").exits(0)
    assert [view["plan"] for view in ran.json] == ["plans/X.md"]


def everything(project: Project) -> dict[str, str]:
    """Every file of the project and of the home directory, the repository's own among them."""
    places = (project.path, project.home)
    files = (path for place in places for path in place.rglob("*") if path.is_file() and "/.cache" not in str(path))
    return {str(path): hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in files}


@pytest.mark.promise
@pytest.mark.parametrize(("words", "setting"), [(("finish", "auto"), "cherry-pick"), (("2", "cherry-pick"), "pr")])
def test_a_dry_run_lists_the_phases_and_changes_nothing(project: Project, words: tuple[str, ...], setting: str) -> None:
    """The landing is that of the words, else that of the settings."""
    set_up(project, plan=a_plan("1", "2"))
    before = everything(project)
    ran = project.runplan("start", "X", *words, "--dry-run", RUNPLAN_RUN_LANDING=setting)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("plan        plans/X.md (X)\ntarget      main, landing by cherry-pick\n")
    due = ["1", "2"] if "finish" in words else ["2"]
    assert [line.split()[1] for line in ran.out.splitlines() if line.startswith("phase ")] == due
    assert ran.out.endswith("Nothing was changed.\n")
    assert everything(project) == before


@pytest.mark.promise
@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        pytest.param(a_plan("1", front="status: complete"), (), "the plan is already complete", id="complete"),
        pytest.param(a_plan("1", front="").replace("⬚", "✅"), (), "every phase is done", id="all done"),
        pytest.param(
            a_plan("1", "2").replace("1 — Step 1 | ⬚ | |", "1 — Step 1 | ✅ Done | `abc1234` |"),
            ("1",),
            "phase 1 is already done (abc1234)",
            id="phase done",
        ),
    ],
)
def test_nothing_to_do_changes_nothing(project: Project, text: str, words: tuple[str, ...], says: str) -> None:
    set_up(project, plan=text)
    before = everything(project)
    ran = project.start(*words, "auto")
    assert (ran.code, ran.out, ran.err) == (0, "", f"runplan: plans/X.md: {says}; nothing to do\n")
    assert everything(project) == before
