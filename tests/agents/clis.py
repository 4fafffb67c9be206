"""The agent command lines under test: how each is pointed at the scripted model, and a project that uses it."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.agents.modelserver import ModelServer
from tests.agents.scenario import KEY, Fault, Read, Run, Say, Scenario, Turn, Write
from tests.container.image import NAME as IMAGE
from tests.support import planning
from tests.support.cli import Project, a_plan
from tests.support.mounts import obstacle
from tests.support.repos import Repo, init_repo
from tests.support.samples import FOLDERS, expected

HERE = Path(__file__).parents[2] / ".agents"
BIN = HERE / "bin"
#: They run as with most users: in the sandbox where it works.
SANDBOX = os.environ.get("RUNPLAN_AGENTS_SANDBOX") or ("none" if obstacle() else "bwrap")

IMPLEMENT = "# Implement one phase"
VERIFY = "# Verify one phase"
FIX = "# Fix one phase"

#: Keys that no agent may see: those of the forge and of other agents.
FORGE = {"GH_TOKEN": "forge-secret-1", "GITHUB_TOKEN": "forge-secret-2", "GITLAB_TOKEN": "forge-secret-3"}
FOREIGN = {
    name: f"foreign-secret-{name}"
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """One program."""

    name: str
    address: str  #: the variable that holds the provider's address
    path: str = ""  #: what that address ends with
    key: str
    model: str = ""
    without: tuple[str, ...] = ()  #: keys that must be absent, because the agent would use them
    more: dict[str, str] = field(default_factory=dict)  #: further variables it is given
    tools: bool = True  #: whether its model can run commands
    reports_reset: bool = True  #: whether it hands on when a limit ends; else it is tried again after a while
    reads_only: bool = True  #: whether it has a mode in which it changes nothing; else what it changes is put back
    home: Mapping[str, str] = field(default_factory=dict)  #: files in the home of a user who has used it before
    patient: Sequence[str] = ()  #: the cases in which it retries silently for over a minute before it reports

    @property
    def missing(self) -> str:
        """Why it cannot be run here; "" when it can."""
        if not (BIN / self.name).exists():
            return f"{self.name} is not installed; make install-agents"
        if not shutil.which("node") and not self.is_python:
            return f"{self.name} needs node on PATH"
        return ""

    @property
    def is_python(self) -> bool:
        return (HERE / self.name / "pyvenv.cfg").exists()

    def environment(self, server: ModelServer) -> dict[str, str]:
        return {self.address: server.url + self.path, self.key: KEY, **self.more}

    def settings(self, limits: str, more: str = "") -> str:
        model = f'model = "{self.model}"\n' if self.model else ""
        names = f"env = {json.dumps(list(self.more))}\n" if self.more else ""
        return (
            f'[agents]\nimplementer = "{self.name}"\nverifier = "{self.name}"\nplanner = "{self.name}"\n'
            f'[agents.{self.name}]\nkind = "{self.name}"\n{model}{names}{more}\n[limits]\n{limits}\n'
        )


#: Those whose samples say how the real program is pointed at a model.
CLIS = {name: Cli(name=name, **expected(name)["real"]) for name in FOLDERS if "real" in expected(name)}


def a_project(place: Path, cli: Cli, server: ModelServer, *, limits: str, more: str = "") -> Project:
    """A repository with one phase to do, in an environment that knows nothing of the machine's own keys."""
    home = place / "home"
    home.mkdir()
    for name, text in cli.home.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    env = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "TMPDIR": str(place / "tmp"),
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **FORGE,
        **{name: secret for name, secret in FOREIGN.items() if name not in cli.without},
        **cli.environment(server),
    }
    (place / "tmp").mkdir()
    repo = Repo(path=init_repo(place / "repo").path, env=env)
    repo.write("runplan.toml", cli.settings(limits, more))
    repo.write("plans/X.md", a_plan("1"))
    repo.git("add", "--", "runplan.toml", "plans/X.md")
    repo.git("commit", "-qm", "Begin")
    return Project(repo=repo, home=home, extra={"RUNPLAN_AGENTS_SANDBOX": SANDBOX})


def in_image(cli: Cli) -> dict[str, str]:
    """Settings for an image that has the program on its PATH: its folder, also at its own path, and the interpreter."""
    folder = HERE.resolve()
    interpreter = str((HERE / cli.name / "bin/python").resolve().parents[1]) if cli.is_python else shutil.which("node")
    mounts = f"{folder}:/usr/local:ro,{folder},{interpreter}"
    return {"RUNPLAN_AGENTS_CONTAINER_IMAGE": IMAGE, "RUNPLAN_AGENTS_CONTAINER_MOUNTS": mounts}


def verdict(result: str = "pass") -> str:
    """A verifier's last words."""
    item = {"item": "W1", "result": result, "evidence": "1.txt:1 holds the words the item asks for"}
    verdict_json = {"status": "done", "summary": "Read the diff.", "items": [item]}
    return f"I read the diff.\n\n{fenced(verdict_json)}"


def work(
    *, faults: tuple[Fault, ...] = (), verify: tuple[Turn, ...] = (), implement: tuple[Turn, ...] = ()
) -> Scenario:
    """A scenario in which the phase is done, committed and passes, unless arguments say otherwise."""
    done = (Write("1.txt", "one\n"), Run("git add 1.txt && git commit -qm 'Write 1'"), Say("Phase 1 is done."))
    return Scenario(parts={IMPLEMENT: implement or done, VERIFY: verify or (Say(verdict()),)}, faults=faults)


GOAL = "Greet people"
PROPOSED = "plans/greet-people.md"
#: The words that the prompt of each step of planning begins with.
STEPS = {
    "understand": "# Understand the goal",
    "explore": "# Explore the project",
    "alternatives": "# Compare ways to the goal",
    "draft": "# Draft the plan",
    "critique": "# Criticise the plan",
    "revise": "# Revise the plan",
}


def plan_work(**turns: tuple[Turn, ...]) -> Scenario:
    """A scenario in which each step of planning is answered well, unless the turns of a role say otherwise."""
    files = [{"path": "runplan.toml", "why": "settings"}, {"path": "plans/X.md", "why": "a plan"}]
    answers = {"answers": planning.REVISE["answers"]}
    usual: dict[str, tuple[Turn, ...]] = {
        "understand": (Say(fenced(planning.UNDERSTAND)),),
        "explore": (Read("runplan.toml"), Say(fenced({**planning.EXPLORE, "files": files}))),
        "alternatives": (Say(fenced(planning.ALTERNATIVES)),),
        "draft": (Say(f"This is the plan.\n\n````markdown\n{planning.PLAN}````\n"),),
        "critique": (Say(fenced(planning.CRITIQUE)),),
        "revise": (Say(f"````markdown\n{planning.REVISED}````\n\n{fenced(answers)}"),),
    }
    return Scenario(parts={STEPS[role]: each for role, each in (usual | turns).items()})


def fenced(answer: object) -> str:
    return f"```json\n{json.dumps(answer)}\n```\n"
