"""The verbs around a start: init, doctor and config, in real repositories."""

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from runplan.adapters.agents.environment import FETCHING
from runplan.adapters.sandbox.bubblewrap import find_obstacle
from runplan.app.health import UNCONFINED
from runplan.app.operations.upkeep import describe_agents
from runplan.domain.errors import Exit, RefusedEarly
from runplan.domain.settings.schema import KEYS
from runplan.interfaces.cli.main import run_verb
from runplan.interfaces.cli.verbs import VERBS
from tests.support.documents import verbs_named
from tests.support.repos import Repo, init_repo, make_repo
from tests.support.tools import write_script


class Machine:
    """A machine with git and nothing else, a user without settings."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.patch, self._capsys = place, patch, capsys
        (place / "bin").mkdir()
        (place / "bin/git").symlink_to(shutil.which("git") or "")
        own = {"PATH": place / "bin", "HOME": place / "home", "XDG_CONFIG_HOME": place / "home/config"}
        git = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        for name, value in {**own, **git, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}.items():
            patch.setenv(name, str(value))
        for name in FETCHING:
            patch.delenv(name, raising=False)

    def install(self, *names: str) -> None:
        for name in names:
            write_script(self.place / "bin" / name, "")

    def enter(self, folder: str = "", **files: str) -> Repo:
        """A repository with these files; commands run in this folder of it."""
        repo = make_repo(self.place / "app", **files)
        self.patch.chdir(repo.path / folder)
        return repo

    def out(self) -> str:
        """What was printed since the last time."""
        return self._capsys.readouterr().out


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, monkeypatch, capsys)


def call(verb: str, *words: str) -> Exit:
    return Exit(run_verb(verb, list(words)))


# --- init ----------------------------------------------------------------------------------------------


def test_init_writes_what_it_found_and_names_the_next_command(machine: Machine) -> None:
    machine.install("claude", "codex")
    repo = machine.enter("src", **{"Makefile": "test:\n\ttrue\n", "src/x.py": "", "package-lock.json": ""})
    assert call("init") is Exit.DONE
    values = tomllib.loads((repo.path / "runplan.toml").read_text(encoding="utf-8"))
    assert values["run"] == {"target": "main", "setup": "npm ci"}
    assert values["tests"] == {"command": "make test"}
    assert [values["agents"][role] for role in ("implementer", "verifier", "planner")] == ["claude", "codex", "claude"]
    assert set(values["agents"]) == {"implementer", "verifier", "planner", "container"}
    output = machine.out()
    assert "claude implements, codex verifies" in output
    assert str(repo.path / "runplan.toml") in output
    commit = "git add runplan.toml && git commit -m 'Settings of runplan' -- runplan.toml"
    assert output.endswith(f"Next: runplan doctor; then commit it: {commit}\n")


def test_init_proposes_the_image_of_a_devcontainer(machine: Machine) -> None:
    repo = machine.enter(**{".devcontainer/devcontainer.json": '{"image": "team/dev:1"}'})
    assert call("init") is Exit.DONE
    table = tomllib.loads((repo.path / "runplan.toml").read_text(encoding="utf-8"))["agents"]["container"]
    assert table == {"image": "team/dev:1"}
    assert 'team/dev:1 is in runplan.toml; agents.sandbox = "container" uses it\n' in machine.out()


def test_init_says_how_to_get_an_agent_and_what_a_second_one_adds() -> None:
    none = describe_agents(())
    assert "  claude    npm install -g @anthropic-ai/claude-code\n" in none
    assert "runplan demo" in none
    alone = describe_agents(("claude",))
    assert alone.startswith("claude implements and verifies\n")
    assert "npm install -g @openai/codex" in alone
    assert describe_agents(("claude", "gemini")) == "claude implements, gemini verifies"


@pytest.mark.rest
@pytest.mark.skipif(bool(find_obstacle(os.environ)), reason="no bubblewrap")
def test_init_and_doctor_say_in_five_lines_what_the_processes_of_a_run_see(machine: Machine) -> None:
    (machine.place / "bin/bwrap").symlink_to(shutil.which("bwrap", path=os.defpath) or "")
    (machine.place / "home/.ssh").mkdir(parents=True)
    machine.enter()
    call("init")
    lines = machine.out().partition("sandbox ")[2].partition("wrote ")[0].splitlines()
    assert len(lines) == 5
    assert lines[3].strip() == "absent: .ssh"
    call("doctor")
    shown = machine.out()
    assert [line.strip() for line in lines if line.strip() not in shown] == []


def test_after_init_doctor_finds_no_fault(machine: Machine) -> None:
    machine.install("claude", "python3", "mkdir")
    machine.enter(**{"tests/x.py": ""})
    assert call("doctor") is Exit.USAGE
    call("init")
    assert call("doctor") is Exit.DONE


@pytest.mark.parametrize("name", ["runplan.toml", "config/runplan.toml"])
def test_init_never_overwrites_nor_writes_through_a_dangling_link(machine: Machine, name: str) -> None:
    repo = machine.enter()
    (repo.path / "runplan.toml").symlink_to(machine.place / "elsewhere")
    with pytest.raises(RefusedEarly, match="exists"):
        call("init")
    assert not (machine.place / "elsewhere").exists()
    (repo.path / "runplan.toml").unlink()
    mine = repo.write(name, "mine")
    with pytest.raises(RefusedEarly, match=f"{name} exists and was not changed"):
        call("init")
    assert mine.read_text(encoding="utf-8") == "mine"
    assert repo.status().splitlines() == [f"?? {name}"]


def test_init_writes_a_skill_that_names_existing_verbs_and_never_overwrites(machine: Machine) -> None:
    repo = machine.enter("src", **{"src/x.py": ""})
    assert call("init", "--skill") is Exit.DONE
    skill = repo.path / ".claude/skills/run-plan/SKILL.md"
    text = skill.read_text(encoding="utf-8")
    assert text.startswith("---\nname: run-plan\ndescription: ")
    assert {"status", "start", "approve"} <= verbs_named(text) <= VERBS.keys()
    assert f"wrote {skill}" in machine.out()
    assert not (repo.path / "runplan.toml").exists()
    with pytest.raises(RefusedEarly, match="exists and was not changed"):
        call("init", "--skill")


def test_init_works_in_an_empty_repository(machine: Machine) -> None:
    repo = init_repo(machine.place / "app")
    machine.patch.chdir(repo.path)
    assert call("init") is Exit.DONE
    assert tomllib.loads((repo.path / "runplan.toml").read_text(encoding="utf-8"))["run"] == {"target": "main"}


@pytest.mark.parametrize("verb", ["init", "doctor", "config"])
def test_outside_a_repository_every_verb_is_refused(machine: Machine, verb: str) -> None:
    (machine.place / "new").mkdir()
    machine.patch.chdir(machine.place / "new")
    with pytest.raises(RefusedEarly, match="is not in a git repository; run git init"):
        call(verb)
    assert list((machine.place / "new").iterdir()) == []


# --- doctor --------------------------------------------------------------------------------------------


def test_the_doctor_names_every_fault_at_once(machine: Machine) -> None:
    repo = init_repo(machine.place / "app")
    repo.git("config", "--remove-section", "user")
    repo.write("tests/x.py", "")
    repo.write("blocked", "a file")
    repo.write("runplan.toml", '[run]\nworktrees = "blocked/wt"\n')
    machine.patch.chdir(repo.path)
    assert call("doctor", "--json") is Exit.USAGE
    checks = {each["name"]: each for each in json.loads(machine.out())}
    assert [name for name, each in checks.items() if not each["ok"]] == [
        *("identity", "target", "worktrees", "implementer", "verifier")
    ]
    assert all(each["remedy"] for each in checks.values() if not each["ok"])
    assert set(checks["git"]) == {"name", "ok", "state", "detail", "remedy"}


def test_the_doctor_names_settings_that_cannot_be_read(machine: Machine) -> None:
    machine.install("claude", "codex")
    machine.enter(**{"runplan.toml": "[run\n"})
    assert call("doctor") is Exit.USAGE
    output = machine.out().splitlines()
    faults = [line for line in output if line.startswith("FAIL")]
    assert faults[0].startswith("FAIL  settings    runplan.toml: invalid TOML: Expected ']' at the end of a table")
    assert "-> " in output[2]
    assert faults[1:] == []


NO_BWRAP = "bwrap is not on PATH"


@pytest.mark.parametrize(
    ("mode", "state", "detail"),
    [
        ("auto", "WARN", f"{NO_BWRAP}. {UNCONFINED}"),
        ("bwrap", "FAIL", f'agents.sandbox = "bwrap" does not work here: {NO_BWRAP}'),
        ("none", "ok", f'off: agents.sandbox = "none". {UNCONFINED}'),
    ],
)
def test_doctor_judges_a_missing_sandbox_by_the_setting(machine: Machine, mode: str, state: str, detail: str) -> None:
    machine.install("claude")
    machine.enter(**{"runplan.toml": f'{CHECKED}sandbox = "{mode}"\n'})
    remedy = "" if mode == "none" else "apt install bubblewrap"
    remedy += ', or turn this off: agents.sandbox = "none"' if mode == "auto" else ""
    exit_code = Exit.USAGE if state == "FAIL" else Exit.DONE
    assert call("doctor", "--json") is exit_code
    (check,) = [each for each in json.loads(machine.out()) if each["name"] == "sandbox"]
    assert check == {"name": "sandbox", "ok": state != "FAIL", "state": state, "detail": detail, "remedy": remedy}
    assert call("doctor") is exit_code
    lines = [f"{state:<4}  sandbox     {detail}", *([f"{'':<18}-> {remedy}"] if remedy else [])]
    assert "\n".join(lines) in machine.out()


JUDGED = '[agents]\nimplementer = "claude"\nverifier = "j"\n[agents.j]\n'
CHECKED = '[agents]\nimplementer = "claude"\nverifier = "claude"\n'


@pytest.mark.parametrize(
    ("files", "name", "detail"),
    [
        ({"runplan.toml": CHECKED + '[tests]\ncommand = "make test"\n'}, "tests", "needs Makefile"),
        ({"runplan.toml": CHECKED + '[tests]\ncommand = "pytest"\n'}, "tests", "pytest was not found"),
        ({"runplan.toml": CHECKED + '[tests]\ncommand = "tools/check"\n'}, "tests", "tools/check was not found"),
        ({"runplan.toml": CHECKED + '[tests]\ncommand = "python3 -m nox"\n'}, "tests", "the module nox of python3"),
        ({"runplan.toml": CHECKED + '[run]\nsetup = "make a && pnpm i"\n'}, "setup", "pnpm was not found"),
        ({"runplan.toml": CHECKED, ".gitmodules": ""}, "setup", "submodules"),
        ({"runplan.toml": CHECKED, "tests/x.py": ""}, "tests", "the repository has tests (tests/x.py) but"),
        ({"runplan.toml": CHECKED + '[run]\nlanding = "pr"\n'}, "github", "there is no remote origin here to push to"),
        ({"runplan.toml": CHECKED + '[run]\nlanding = "direct"\n'}, "start", "there is no remote origin here"),
        ({"runplan.toml": JUDGED + 'kind = "script"\nscript = "j.toml"\n'}, "verifier", "there is no script j.toml"),
        ({"runplan.toml": JUDGED + 'kind = "command"\nargv = ["sh", "j.sh"]\n'}, "verifier", "is no script j.sh"),
    ],
)  # fmt: skip
def test_doctor_finds_what_would_fail_a_start(machine: Machine, files: dict[str, str], name: str, detail: str) -> None:
    machine.install("claude", "make", "sh")
    (machine.place / "bin/python3").symlink_to(sys.executable)
    machine.enter(**files)
    assert call("doctor", "--json") is Exit.USAGE
    faults = [each for each in json.loads(machine.out()) if not each["ok"]]
    assert [each["name"] for each in faults] == [name]
    assert detail in faults[0]["detail"]


@pytest.mark.parametrize("argv", ['["./tools/verify.sh"]', '["sh", "tools/verify.sh"]'])
def test_the_doctor_looks_for_a_command_where_the_agent_will_run(machine: Machine, argv: str) -> None:
    machine.install("claude", "sh")
    settings = f'{JUDGED}kind = "command"\nargv = {argv}\n'
    repo = machine.enter(**{"runplan.toml": settings, ".gitignore": "tools/\n"})
    repo.write("tools/verify.sh", "#!/bin/sh\n").chmod(0o755)
    assert call("doctor", "--json") is Exit.USAGE
    (fault,) = [each for each in json.loads(machine.out()) if not each["ok"]]
    assert fault["detail"] == "agents.verifier: tools/verify.sh is not on main, so no worktree has it"
    assert fault["remedy"] == "commit it on main, or add it to run.copy"

    repo.commit("Copy it", **{"runplan.toml": f'{settings}[run]\ncopy = ["tools/verify.sh"]\n'})
    assert call("doctor") is Exit.DONE
    repo.commit("Have it", **{"runplan.toml": settings, ".gitignore": ""})
    assert call("doctor") is Exit.DONE


def test_the_doctor_finds_an_agent_without_key_and_login(machine: Machine) -> None:
    machine.install("claude", "qwen")
    machine.enter(**{"runplan.toml": '[agents]\nimplementer = "claude"\nverifier = "qwen"\n'})
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        machine.patch.delenv(name)
    assert call("doctor") is Exit.USAGE
    output = machine.out()
    assert "claude: neither ANTHROPIC_API_KEY nor " in output
    assert "qwen: OPENAI_API_KEY is not set, and there is no login" in output
    qwen = '{"security": {"auth": {"selectedType": "qwen-oauth"}}}'
    for login, text in {".claude/.credentials.json": "{}", ".qwen/settings.json": qwen}.items():
        (machine.place / "home" / login).parent.mkdir(parents=True)
        (machine.place / "home" / login).write_text(text, encoding="utf-8")
    assert call("doctor") is Exit.DONE


def test_the_doctor_warns_of_a_planner_that_cannot_work(machine: Machine) -> None:
    machine.install("codex")
    settings = '[agents]\nimplementer = "codex"\nverifier = "codex"\n'
    machine.enter(**{"runplan.toml": settings})
    assert call("doctor") is Exit.DONE
    problem = "`runplan plan` cannot work: claude is not installed or not on PATH"
    assert f"\nWARN  planner     {problem}\n" in machine.out()


def test_the_doctor_judges_by_the_committed_settings(machine: Machine) -> None:
    machine.install("claude")
    repo = machine.enter(**{"runplan.toml": CHECKED, ".gitattributes": "*.toml filter=own\n"})
    repo.git("config", "filter.own.clean", f": >{machine.place}/harm")  # an agent may have edited its program
    repo.write("runplan.toml", CHECKED.replace('verifier = "claude"', 'verifier = "codex"'))
    assert call("doctor") is Exit.DONE
    output = machine.out()
    assert "\nWARN  settings    runplan.toml in the checkout is not committed on main; the version of main" in output
    assert "\n                  -> To use yours: git add runplan.toml && git commit -m" in output
    assert "\nWARN  tests       no tests are run, and every report says so\n" in output
    assert not (machine.place / "harm").exists()


# --- config --------------------------------------------------------------------------------------------


def test_config_prints_every_key_with_value_and_origin(machine: Machine) -> None:
    machine.enter(**{"runplan.toml": '[run]\ntarget = "trunk"\n[agents.local]\nkind = "command"\nargv = ["a", "b"]\n'})
    machine.patch.setenv("RUNPLAN_LIMITS_WALL", "3h")
    assert call("config") is Exit.DONE
    lines = [" ".join(line.split()) for line in machine.out().splitlines()]
    assert 'run.target "trunk" runplan.toml' in lines
    assert 'limits.wall "3h" RUNPLAN_LIMITS_WALL' in lines
    assert "run.copy [] default" in lines
    assert 'agents.local.argv ["a", "b"] runplan.toml' in lines
    assert [line.split()[0] for line in lines[: len(KEYS)]] == [key.path for key in KEYS]
    call("config", "--json")
    rows = json.loads(machine.out())
    assert {"key": "limits.wall", "value": "3h", "origin": "RUNPLAN_LIMITS_WALL"} in rows
