"""The scenes of the matrix: small projects whose runs, between them, pass every action and every effect.

The agent is a shell script of the project. It does its work once, however often it is asked; it stops where a file in
`$HOME/hold` bids it, so that it can be met, and killed, at any stage of its work. In phase 2 it leaves the commit to
others; where it is to fail it makes a branch that is not its own. It notes when another one works on its phase.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.container.image import NAME as IMAGE
from tests.support.cli import Project, a_plan
from tests.support.github.hub import Hub, Issue
from tests.support.github.server import StandIn, environment
from tests.support.planning import CRITIQUE, PLAN as DRAFT, REVISE
from tests.support.repos import Repo, init_repo

# --- ways of landing ------------------------------------------------------------------------------------

MAIN = "refs/heads/main"
MOST_SERVERS = 20
ISSUE = 7  #: of every plan
BY_A_PERSON = "begun\nby a person\n"
SUBJECT = "Change all.txt"
WORDS = "Use the existing parser."


@dataclass(frozen=True)
class Way:
    """One way of landing."""

    name: str  #: the word after `start`
    set_up: Callable[[Path, Repo], None]  #: once for a template: (its directory, the repository in it)
    moved: Callable[[Path, Repo], None]  #: after the template was copied to this directory
    target: Callable[[Path], Path]  #: the repository whose main is the target
    person: Callable[[Path, Repo], None]  #: another person changes all.txt on the target


def _nothing(place: Path, repo: Repo) -> None:
    return


def _bare(place: Path) -> Path:
    return place / "remote.git"


def _add_remote(place: Path, repo: Repo) -> None:
    init_repo(_bare(place), "--bare")
    repo.git("remote", "add", "origin", str(_bare(place)))
    repo.git("push", "-q", "-u", "origin", "main")
    repo.git("remote", "set-head", "origin", "main")


def _follow_remote(place: Path, repo: Repo) -> None:
    config = repo.path / ".git/config"
    lines = config.read_text(encoding="utf-8").splitlines()
    put = [f"\turl = {_bare(place)}" if line.strip().startswith("url = ") else line for line in lines]
    config.write_text("\n".join(put) + "\n", encoding="utf-8")


def _commit_here(place: Path, repo: Repo) -> None:
    repo.write("all.txt", BY_A_PERSON)
    repo.git("commit", "-qm", SUBJECT, "--", "all.txt")


def _push(place: Path, repo: Repo) -> None:
    """As a push from elsewhere would: no checkout of ours is involved."""
    remote = Repo(path=_bare(place), env={**repo.env, "GIT_INDEX_FILE": str(place / "person.index")})
    blob = remote.git("hash-object", "-w", "--stdin", stdin=BY_A_PERSON)
    remote.git("read-tree", MAIN)
    remote.git("update-index", "--cacheinfo", f"100644,{blob},all.txt")
    tree = remote.git("write-tree")
    old = remote.git("rev-parse", MAIN)
    new = remote.git("commit-tree", "-p", old, "-m", SUBJECT, tree)
    remote.git("update-ref", MAIN, new, old)


SERVERS: dict[Path, StandIn] = {}  #: the newest few, by place


def _serve(place: Path, repo: Repo) -> None:
    """Serve the remote as GitHub does; every push of a plan's branch starts a check that passes."""
    hub = Hub(_bare(place))
    hub.git("config", "http.receivepack", "true")
    hub.on_push = lambda branch, sha: hub.check(sha) if "/pr" in branch else None
    hub.issues[ISSUE] = Issue(number=ISSUE, title="Bug", body="")
    while len(SERVERS) > MOST_SERVERS:
        SERVERS.pop(next(iter(SERVERS))).__exit__()
    SERVERS[place] = StandIn(hub).__enter__()
    repo.git("remote", "set-url", "origin", SERVERS[place].remote)
    repo.env.update(environment(SERVERS[place]))


def pull_requests(place: Path) -> Hub | None:
    """The forge at this place; None for ways that use none."""
    return SERVERS[place].hub if place in SERVERS else None


def merge_open(place: Path) -> None:
    """Merge what is open, as a person does who has looked at it."""
    hub = pull_requests(place)
    for pull in hub.pulls.values() if hub else ():
        if hub and pull.state == "open" and not hub.hindrance(pull):
            hub.do_merge(pull, "merge")


WAYS = (
    Way(name="cherry-pick", set_up=_nothing, moved=_nothing, target=lambda place: place / "repo", person=_commit_here),
    Way(name="direct", set_up=_add_remote, moved=_follow_remote, target=_bare, person=_push),
    Way(name="pr", set_up=_add_remote, moved=_serve, target=_bare, person=_push),
)
WAY_BY_NAME = {way.name: way for way in WAYS}

# --- scenes ---------------------------------------------------------------------------------------------

STAGE, AGENT = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("stage.sh", "agent.sh"))
SETTINGS = """\
[agents]
implementer = "robot"
verifier = "robot"
planner = "robot"
[agents.robot]
kind = "command"
argv = ["sh", "agent.sh"]
[run]
"""
COPIES = 'copy = ["local.env"]\n'
#: Both leave files that are no work; the check fails until a fixer has run.
CHECKS = """\
setup = ". ./stage.sh; mkdir -p deps && touch deps/ok junk"
[tests]
command = ". ./stage.sh; test -e deps/ok && touch junk2 && { test ! -e 1.txt || test -e mended.txt; }"
"""
#: A trial finds something until a fixer has run.
TRIED = """\
[try]
paths = ["*.txt"]
serve = "exec python3 -m http.server $RUNPLAN_PORT --bind 127.0.0.1"
"""
#: A phase ahead begins while the checks of phase 1 fail: until a fixer has run, or until a person has helped.
AHEAD = f"pipeline = 1\n{CHECKS}"
RED = """\
pipeline = 1
max_fix_cycles = 0
[tests]
command = ". ./stage.sh; test ! -e 1.txt || test ! -e $HOME/hold/red"
"""
#: Files of the user that must survive: an edit of a file that no phase touches, and an untracked file.
EDITED, NOTES = "hello\nedited\n", "mine\n"


@dataclass(frozen=True)
class Scene:
    """One project, and how a person works it to its end."""

    name: str
    about: str
    plans: Mapping[str, tuple[str, ...]]  #: the phases of each that agents do
    settings: str = ""
    contested: bool = False  #: whether the target changes while the first agent works
    fails: str = ""  #: the file that makes agents or checks fail until a person deletes it
    stops: bool = False  #: whether a person stops the run once the first agent has committed
    asks: bool = False  #: whether agents ask a person, who rejects the first change with words
    auto: bool = True
    undoes: int = 0  #: how often a phase is taken back
    parks: bool = False  #: whether an undisturbed run parks something
    apart: bool = False  #: whether each phase touches its own file only
    chained: bool = False  #: whether each phase depends on the one before it
    pace_s: float = 0  #: how long an agent works
    planned: bool = False  #: whether agents write the plan, which a person approves
    queued: bool = False  #: whether a person has the daemon work on the queue of plans
    tells: bool = False  #: whether a person tells the first agent something once it has committed
    large: str = ""  #: the phase that is planned before it is worked
    subplan: str = ""  #: the plan that does the last phase of the first one, `S`
    group: tuple[str, ...] = ()  #: the phases that share the second pull request of a stack

    @property
    def needs_daemon(self) -> bool:
        return self.queued or self.tells

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(phase for phases in self.plans.values() for phase in phases)

    @property
    def started(self) -> tuple[str, ...]:
        """The plans that a person starts."""
        return tuple(name for name in self.plans if name != self.subplan)


ONE, TWO, THREE = {"X": ("1",)}, {"X": ("1", "2")}, {"X": ("1", "2", "3")}
SCENES = (
    Scene(name="two", about="two phases, one after the other", plans=TWO),
    Scene(name="checked", about="one phase with setup, checks and a fixer", plans=ONE, settings=CHECKS),
    Scene(name="tried", about="one phase that is served and tried, with a fixer", plans=ONE, settings=TRIED),
    Scene(
        name="contested",
        about="the user's commit conflicts with the phase; a person approves",
        plans=ONE,
        contested=True,
        auto=False,
        parks=True,
    ),
    Scene(
        name="squashed",
        about="two phases, whose bookkeeping is one commit at the end of a pull request",
        plans=TWO,
        settings='[pull_request]\nbookkeeping = "squash"\n',
    ),
    Scene(
        name="stacked",
        about="three phases in a stack of two pull requests",
        plans=THREE,
        settings="[pull_request]\nstack = true\n",
        group=("2", "3"),
    ),
    Scene(name="failing", about="the first attempt fails, the second continues and lands", plans=ONE, fails="fail"),
    Scene(name="stopped", about="a person stops the run, and starts it again", plans=TWO, stops=True),
    Scene(name="asking", about="a question, and words with a rejection", plans=ONE, asks=True, auto=False),
    Scene(name="undone", about="a landed phase is taken back, and landed again", plans=ONE, undoes=1),
    Scene(name="nested", about="a sub-plan", plans={"X": ("1",), "A": ("2",)}, apart=True, subplan="A"),
    Scene(name="parallel", about="three phases side by side", plans=THREE, settings="parallel = 3\n", apart=True),
    Scene(name="ahead", about="phases ahead of one that is fixed", plans=THREE, settings=AHEAD, chained=True),
    Scene(
        name="dropped",
        about="a phase ahead of one that fails; both land in the next run",
        plans=THREE,
        settings=RED,
        fails="red",
        chained=True,
    ),
    Scene(name="queue", about="a queue of two plans", plans={"X": ("1",), "A": ("2",)}, apart=True, queued=True),
    Scene(name="told", about="a person tells a running agent something", plans=TWO, tells=True),
    Scene(name="plan", about="agents write the plan, and then work it", plans=TWO, apart=True, planned=True),
    Scene(
        name="explored",
        about="the same, after three agents have explored side by side",
        plans=TWO,
        settings="[plan]\nexplorers = 3\n",
        apart=True,
        planned=True,
    ),
    Scene(
        name="large",
        about="a phase that is planned before it is worked",
        plans=TWO,
        settings='[plan]\nsteps = ["explore"]\n',
        large="2",
    ),
)
BY_NAME = {scene.name: scene for scene in SCENES}


def _plan(scene: Scene, name: str) -> str:
    phases = scene.plans[name]
    rows = (*phases, "S") if scene.subplan not in ("", name) else phases
    depends = {after: f"Phase {before}." for before, after in pairwise(phases)} if scene.chained else {}
    front = f"status: active\nissue: {ISSUE}" if name in scene.started else "status: active"
    front = "status: active\nafter: X" if scene.queued and name != "X" else front
    plan = a_plan(*rows, depends=depends, front=front)
    plan = plan.replace("- [ ] Write S.txt", f"Execution: plan plans/{scene.subplan}.md")
    heading = f"## Phase {scene.large} — Step {scene.large}\n"
    plan = plan.replace(heading, f"{heading}\nExecution: plan-first\n")
    for phase in phases if scene.apart else ():
        heading = f"## Phase {phase} — Step {phase}\n"
        plan = plan.replace(heading, f"{heading}\nTouches: {phase}.txt\n")
    for phase in scene.group:
        heading = f"## Phase {phase} — Step {phase}\n"
        plan = plan.replace(heading, f"{heading}\nPull-request: `rest`\n")
    return plan


#: What the agents of the steps of planning return.
PLANNED = DRAFT.replace("Write the greeting", "Step 1").replace("Write the farewell", "Step 2")
ANSWERS = {
    "explore": {"files": [{"path": "agent.sh", "why": "it works"}, {"path": "README.md", "why": "it says hello"}]},
    "draft": {"plan": PLANNED},
    "critique": CRITIQUE,
    "revise": {**REVISE, "plan": PLANNED.replace("Write `2.txt`", "Write `2.txt` last")},
}


def template(scene: Scene, way: Way, place: Path, *, copies: bool = True) -> Path:
    """The project as it is before anything runs, to be copied; `copies` a file that is not committed to worktrees."""
    place.mkdir(parents=True)
    repo = init_repo(place / "repo", "--template=")
    plans = {f"plans/{name}.md": _plan(scene, name) for name in scene.plans}
    answers = {f"answers/{role}.json": json.dumps(answer) for role, answer in ANSWERS.items()}
    files = {
        "runplan.toml": SETTINGS
        + (COPIES if copies else "")
        + (f'landing = "{way.name}"\n' if scene.planned else "")
        + scene.settings,
        **(answers if scene.planned else plans),
        **({"answers/explore.json": answers["answers/explore.json"]} if scene.large else {}),
        "agent.sh": AGENT,
        "stage.sh": STAGE,
        "README.md": "hello\n",
        "all.txt": "begun\n",
        ".gitignore": "deps/\nlocal.env\n",
    }
    if scene.asks:
        files["asks"] = ""
    if scene.pace_s:
        files["pace"] = f"{scene.pace_s}\n"
    repo.commit("Begin", **files)
    repo.write("local.env", "KEY=1\n")
    repo.write("README.md", EDITED)
    repo.write("notes.txt", NOTES)
    way.set_up(place, repo)
    for name in ("home/hold", "home/at"):
        (place / name).mkdir(parents=True)
    return place


def copied(model: Path, way: Way, place: Path) -> Project:
    """The same project at another place: making one takes longer than a copy."""
    shutil.copytree(model, place, symlinks=True)
    project = Project(repo=Repo(path=place / "repo"), home=place / "home")
    way.moved(place, project.repo)
    return project


def confine(project: Project, sandbox: str) -> None:
    """Run its agents and checks in a sandbox, in which they meet the person at the same two places."""
    places = f"{project.home}/hold,{project.home}/at"
    project.extra |= {"RUNPLAN_AGENTS_SANDBOX": sandbox, "RUNPLAN_AGENTS_CONTAINER_IMAGE": IMAGE}
    project.extra |= {"RUNPLAN_AGENTS_MOUNTS": places, "RUNPLAN_TESTS_MOUNTS": places}
