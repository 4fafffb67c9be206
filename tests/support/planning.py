"""The answers of scripted agents to the steps of a planning run."""

import json
from pathlib import Path
from typing import Any

from tests.support.cli import SETTINGS, Project, Ran, writes
from tests.support.hostile import standing

GOAL = "Greet people"
GREET = "plans/greet-people.md"  #: the plan for it
UNDERSTAND = {
    "status": "done",
    "problem": "Nobody is greeted.",
    "success": ["`python3 -c 'import greet'` works"],
    "assumptions": ["English is enough"],
    "questions": [],
}
EXPLORE = {
    "status": "done",
    "files": [{"path": "runplan.toml", "why": "settings"}, {"path": "agent.toml", "why": "the agent"}],
    "notes": "A small project.",
}
ALTERNATIVES = {
    "status": "done",
    "options": [
        {"name": "a module", "advantages": ["simple"], "drawbacks": ["no package"]},
        {"name": "a package", "advantages": ["grows"], "drawbacks": ["more files"]},
    ],
    "choice": "a module",
    "why": "It is small.",
}
PLAN = Path(__file__).with_name(Path(GREET).name).read_text(encoding="utf-8")
PRINCIPLES = [{"id": f"P{number}", "verdict": "PASS", "why": "It holds."} for number in range(1, 10)]
CRITIQUE = {
    "status": "done",
    "principles": [{"id": "P1", "verdict": "FAIL", "why": "The order is unclear."}, *PRINCIPLES[1:]],
    "findings": [{"id": "F1", "where": "phase 2", "text": "It does not say what the farewell is."}],
}
CONTENT = {"principles": PRINCIPLES, "findings": []}  #: a critique that finds nothing, so that nothing is revised
REVISED = PLAN.replace("- Write `2.txt`.", "- Write `2.txt` with the word bye.")
REVISE = {"status": "done", "plan": REVISED, "answers": [{"finding": "F1", "changed": True, "how": "Named the word."}]}


def said(answer: Any) -> str:
    """The step of a script that says the answer as a fenced block."""
    return f"[[STEP]]\nsay = '''\n```json\n{json.dumps(answer, ensure_ascii=False)}\n```\n'''\n"


def planner(**answers: Any) -> str:
    """A script that answers every step of planning; `answers` by role, also `draft2`, replace these."""
    usual = {
        "understand": UNDERSTAND,
        "explore": EXPLORE,
        "alternatives": ALTERNATIVES,
        "draft": {"status": "done", "plan": PLAN},
        "critique": CRITIQUE,
        "revise": REVISE,
    }
    steps = {**usual, **answers}
    texts = ((role, answer if isinstance(answer, str) else said(answer)) for role, answer in steps.items())
    return "".join(text.replace("[[STEP]]", f'[[phase."*".{role}]]') for role, text in texts)


def planning_project(project: Project, script: str = "", more: str = "") -> Project:
    """The scripted agent plans too, and works the plan well; `more` are further settings."""
    project.repo.write("runplan.toml", SETTINGS.replace("[agents]\n", '[agents]\nplanner = "robot"\n') + more)
    project.repo.write("agent.toml", (script or planner()) + writes("1", "2"))
    project.repo.commit("Set up planning")
    return project


def plan(project: Project, *words: str, **env: str) -> Ran:
    """Plan the goal in few steps, in the foreground."""
    return project.runplan("plan", GOAL, "--quick", "--foreground", *words, **env)


def fields(project: Project, kind: str, field: str, path: str = GREET) -> list[Any]:
    """The values of a field in the events of one kind."""
    return [body.get(field) for body in project.bodies(kind, path)]


def asked(project: Project, path: str = GREET) -> list[str]:
    """The hashes of the proposals that a person was asked about."""
    return fields(project, "ApprovalAsked", "tree", path)


def prompts(project: Project, role: str = "", path: str = GREET) -> list[str]:
    """The prompts of the agents of a role, or of all."""
    return project.prompts(*([role] if role else []), plan=path)


def what_is_the_users(project: Project) -> dict[str, str]:
    """Every file of the checkout and of git's own, and every ref but those below refs/runplan/."""
    rows = project.repo.git("for-each-ref", "--format=%(refname) %(objectname) %(symref)").splitlines()
    return standing(project) | {row.partition(" ")[0]: row for row in rows if not row.startswith("refs/runplan/")}
