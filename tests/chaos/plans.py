"""Random plans with random outcomes, worked with and without phases ahead: what lands must be the same.

After a failure all agents do well, and the plan is started again.
The work of an agent depends on its phase and role alone, and so do verdicts and checks on the content of the tree. A
fixer does the whole work of its phase again, so it can solve a conflict as well.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import Project, a_plan, end_processes_of
from tests.support.repos import Repo, init_repo

FILES = ("a.txt", "b.txt")  #: several phases edit them: each its own line, and some the first line
OUTCOMES = (
    *("passes", "passes", "rejected", "rejected", "red", "picky", "strays", "fails", "empty", "hopeless", "ever-red"),
)
AGENT = Path(__file__).with_name("random_agent.sh").read_text(encoding="utf-8")
SETTINGS = """\
[agents]
implementer = "robot"
verifier = "robot"
[agents.robot]
kind = "command"
argv = ["sh", "agent.sh"]
[tests]
command = "! grep -s red [0-9].txt"
[run]
"""
SETUP = 'setup = "mkdir -p deps && touch deps/ok"\n'


@dataclass(frozen=True)
class Result:
    """What a person sees after a run; without times, ids and the number of commits."""

    code: int
    ended: tuple[str, ...]  #: outcome, reason and failed phase of the run
    landed: tuple[str, ...]  #: phases, in order
    files: str  #: the target without plan and reports
    tracker: tuple[str, ...]


def compare(place: Path, *, seed: int, pace_s: float = 0) -> list[str]:
    """Work the plan of the seed one phase after the other, then with phases ahead; the differences."""
    chance = random.Random(seed)
    plan, files = _make_plan(chance, pace_s)
    depth = chance.choice((1, 1, 2))
    sequential, _ = _work(place / "sequential", plan, files, 0)
    pipelined, wrong = _work(place / "pipelined", plan, files, depth)
    for number, (before, after) in enumerate(zip(sequential, pipelined, strict=False), 1):
        names = (name for name in Result.__dataclass_fields__ if getattr(before, name) != getattr(after, name))
        wrong += [f"run {number}: {getattr(after, name)} instead of {getattr(before, name)}" for name in names]
    if sequential[-1].code or pipelined[-1].code:
        wrong.append(f"the last run failed: {sequential[-1].ended}, {pipelined[-1].ended}")
    return [f"seed {seed}, pipeline = {depth}: {words}" for words in wrong]


def _make_plan(chance: random.Random, pace_s: float) -> tuple[str, dict[str, str]]:
    """The plan, and the files of its project."""
    phases = tuple(map(str, range(1, chance.randint(3, 5) + 1)))
    order = chance.sample(phases, len(phases)) if chance.random() < 0.2 else phases
    outcomes = {phase: chance.choice(OUTCOMES) if chance.random() < 0.7 else "passes" for phase in phases}
    depends: dict[str, str] = {}
    files: dict[str, str] = {}
    touches: dict[str, list[str]] = {}
    for number, phase in enumerate(order):
        slots = chance.sample(FILES, chance.choice((0, 1, 1, 2)))
        heads = [name for name in slots if chance.random() < 0.4]
        needed = [before for before in order[:number] if chance.random() < 0.45]
        if needed:
            depends[phase] = " ".join(f"Phase {before}." for before in needed)
        if chance.random() < 0.6:
            touches[phase] = [f"{phase}.txt", *slots]
        lines = [f"outcome={outcomes[phase]}", f"slots='{' '.join(slots)}'", f"heads='{' '.join(heads)}'"]
        files[f"phases/{phase}"] = "\n".join([*lines, f"pace={chance.uniform(0, pace_s):.2f}\n" if pace_s else ""])
    slots_of_all = "".join(f"{'-' * 5}\n" * 6 + f"slot {phase}: free\n" for phase in phases)
    files |= dict.fromkeys(FILES, f"head: free\n{slots_of_all}")
    files["runplan.toml"] = SETTINGS + (SETUP if chance.random() < 0.5 else "")
    plan = a_plan(*phases, depends=depends)
    for phase, paths in touches.items():
        heading = f"## Phase {phase} — Step {phase}\n"
        plan = plan.replace(heading, f"{heading}\nTouches: {', '.join(paths)}\n")
    return plan, files


def _work(place: Path, plan: str, files: dict[str, str], pipeline: int) -> tuple[list[Result], list[str]]:
    """The result of one run, and of a second one where it failed; and what is wrong by itself."""
    (place / "home").mkdir(parents=True)
    repo = init_repo(place / "repo")
    settings = f"{files['runplan.toml']}pipeline = {pipeline}\n"
    repo.commit("Begin", **{**files, "runplan.toml": settings, "plans/X.md": plan, "agent.sh": AGENT})
    repo.write(".git/info/exclude", "deps/\n")
    project = Project(repo=Repo(path=repo.path, env=repo.env), home=place / "home")
    try:
        results = [_describe(project, project.start("finish", "auto").code)]
        wrong = list(_find_wrong(project))
        if results[0].code:
            (project.home / "mended").touch()
            repo.commit("Move on", **{"other.txt": "moved\n"})
            results.append(_describe(project, project.start("finish", "auto").code))
            wrong += _find_wrong(project)
        return results, wrong
    finally:
        end_processes_of(project.home)


def _describe(project: Project, code: int) -> Result:
    run = project.runplan("status", "X", "--json").json["run"]
    entries = project.repo.git("ls-tree", "-r", "main").splitlines()
    return Result(
        code=code,
        ended=(run["state"], run["reason"] or "", run["phase"] or "" if code else ""),
        landed=tuple(dict.fromkeys(project.landed())),
        files="\n".join(line for line in entries if not re.search(r"\t(plans/|reports/|runplan\.toml)", line)),
        tracker=tuple(re.findall(r"^\| (\S+ — .*?\|.*?)\|", project.show("main:plans/X.md"), re.MULTILINE)),
    )


def _find_wrong(project: Project) -> Iterator[str]:
    """A phase that began on another one and was proven before that landed; work that is left at a wrong place."""
    below: dict[str, str] = {}
    landed = []
    for kind, body in project.events():
        if kind == "LanesChosen":
            below |= {name: after for name, after, _ in body["ahead"]}
        if kind == "Landed":
            landed.append(body["phase"])
        is_proof = kind == "DispatchStarted" and body["role"] in ("gate", "verify", "prove", "baseline")
        if (is_proof or kind == "LandingStarted") and below.get(body.get("lane", ""), "") not in ("", *landed):
            yield f"{kind} of phase {body['phase']} before the landing of phase {below[body['lane']]}"
    for left in project.leftovers():
        if not left.startswith(("refs/heads/runplan/", "refs/runplan/parked/")):
            yield f"{left} is left"
