"""The verbs around a start: init, doctor and config, in real repositories."""

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from runplan.adapters.agents.environment import FETCHING
from runplan.adapters.agents.invocation import lacks_login
from runplan.adapters.sandbox.bubblewrap import find_obstacle
from runplan.app.health import UNCONFINED
from runplan.app.operations.upkeep import describe_agents
from runplan.domain.errors import Exit, RefusedEarly
from runplan.domain.settings.schema import KEYS, AgentTable
from runplan.interfaces.cli.main import run_verb
from runplan.interfaces.cli.verbs import VERBS
from tests.support.documents import verbs_named
from tests.support.repos import init_repo, make_repo


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with git and nothing else, a user without settings."""
    (tmp_path / "bin").mkdir()
    for name, value in {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "home/config"),
    }.items():
        monkeypatch.setenv(name, value)
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin/git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "k")
    for name in FETCHING:
        monkeypatch.delenv(name, raising=False)


def install(tmp_path: Path, *names: str) -> None:
    for name in names:
        path = tmp_path / "bin" / name
        path.write_text("#!/bin/sh\n", encoding="utf-8")
        path.chmod(0o755)


def call(verb: str, *words: str) -> Exit:
    return Exit(run_verb(verb, list(words)))


# --- init ----------------------------------------------------------------------------------------------


def test_init_writes_what_it_found_and_names_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "claude", "codex")
    repo = make_repo(tmp_path / "app", **{"Makefile": "test:\n\ttrue\n", "src/x.py": "", "package-lock.json": ""})
    monkeypatch.chdir(repo.path / "src")
    assert call("init") is Exit.DONE
    values = tomllib.loads((repo.path / "runplan.toml").read_text(encoding="utf-8"))
    assert values["run"] == {"target": "main", "setup": "npm ci"}
    assert values["tests"] == {"command": "make test"}
    assert [values["agents"][role] for role in ("implementer", "verifier", "planner")] == ["claude", "codex", "claude"]
    assert set(values["agents"]) == {"implementer", "verifier", "planner", "container"}
    output = capsys.readouterr().out
    assert "claude implements, codex verifies" in output
    assert str(repo.path / "runplan.toml") in output
    commit = "git add runplan.toml && git commit -m 'Settings of runplan' -- runplan.toml"
    assert output.endswith(f"Next: runplan doctor; then commit it: {commit}\n")


def test_init_proposes_the_image_of_a_devcontainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = make_repo(tmp_path / "app", **{".devcontainer/devcontainer.json": '{"image": "team/dev:1"}'})
    monkeypatch.chdir(repo.path)
    assert call("init") is Exit.DONE
    table = tomllib.loads((repo.path / "runplan.toml").read_text(encoding="utf-8"))["agents"]["container"]
    assert table == {"image": "team/dev:1"}
    assert 'team/dev:1 is in runplan.toml; agents.sandbox = "container" uses it\n' in capsys.readouterr().out


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
def test_init_and_doctor_say_in_five_lines_what_the_processes_of_a_run_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin/bwrap").symlink_to(shutil.which("bwrap", path=os.defpath) or "")
    (tmp_path / "home/.ssh").mkdir(parents=True)
    repo = make_repo(tmp_path / "app")
    monkeypatch.chdir(repo.path)
    call("init")
    lines = capsys.readouterr().out.partition("sandbox ")[2].partition("wrote ")[0].splitlines()
    assert len(lines) == 5
    assert lines[3].strip() == "absent: .ssh"
    call("doctor")
    shown = capsys.readouterr().out
    assert [line.strip() for line in lines if line.strip() not in shown] == []


def test_after_init_doctor_finds_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "claude", "python3", "mkdir")
    repo = make_repo(tmp_path / "app", **{"tests/x.py": ""})
    monkeypatch.chdir(repo.path)
    assert call("doctor") is Exit.USAGE
    call("init")
    assert call("doctor") is Exit.DONE


@pytest.mark.parametrize("name", ["runplan.toml", "config/runplan.toml"])
def test_init_never_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    repo = make_repo(tmp_path / "app")
    mine = repo.write(name, "mine")
    monkeypatch.chdir(repo.path)
    with pytest.raises(RefusedEarly, match=f"{name} exists and was not changed"):
        call("init")
    assert mine.read_text(encoding="utf-8") == "mine"
    assert repo.status().splitlines() == [f"?? {name}"]


def test_init_does_not_write_through_a_dangling_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path / "app")
    (repo.path / "runplan.toml").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(repo.path)
    with pytest.raises(RefusedEarly, match="exists"):
        call("init")
    assert not (tmp_path / "elsewhere").exists()


def test_init_writes_a_skill_that_names_existing_verbs_and_never_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = make_repo(tmp_path / "app", **{"src/x.py": ""})
    monkeypatch.chdir(repo.path / "src")
    assert call("init", "--skill") is Exit.DONE
    skill = repo.path / ".claude/skills/run-plan/SKILL.md"
    text = skill.read_text(encoding="utf-8")
    assert text.startswith("---\nname: run-plan\ndescription: ")
    assert {"status", "start", "approve"} <= verbs_named(text) <= VERBS.keys()
    assert f"wrote {skill}" in capsys.readouterr().out
    assert not (repo.path / "runplan.toml").exists()
    with pytest.raises(RefusedEarly, match="exists and was not changed"):
        call("init", "--skill")


def test_init_works_in_an_empty_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = init_repo(tmp_path / "app")
    monkeypatch.chdir(repo.path)
    assert call("init") is Exit.DONE
    assert tomllib.loads((repo.path / "runplan.toml").read_text(encoding="utf-8"))["run"] == {"target": "main"}


@pytest.mark.parametrize("verb", ["init", "doctor", "config"])
def test_outside_a_repository_every_verb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    with pytest.raises(RefusedEarly, match="is not in a git repository; run git init"):
        call(verb)
    assert list((tmp_path / "new").iterdir()) == []


# --- doctor --------------------------------------------------------------------------------------------


def test_the_doctor_names_every_fault_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = init_repo(tmp_path / "app")
    repo.git("config", "--remove-section", "user")
    repo.write("tests/x.py", "")
    repo.write("blocked", "a file")
    repo.write("runplan.toml", '[run]\nworktrees = "blocked/wt"\n')
    monkeypatch.chdir(repo.path)
    assert call("doctor", "--json") is Exit.USAGE
    checks = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert [name for name, each in checks.items() if not each["ok"]] == [
        *("identity", "target", "worktrees", "implementer", "verifier")
    ]
    assert all(each["remedy"] for each in checks.values() if not each["ok"])
    assert set(checks["git"]) == {"name", "ok", "state", "detail", "remedy"}


def test_the_doctor_names_settings_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "claude", "codex")
    repo = make_repo(tmp_path / "app", **{"runplan.toml": "[run\n"})
    monkeypatch.chdir(repo.path)
    assert call("doctor") is Exit.USAGE
    output = capsys.readouterr().out.splitlines()
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
def test_the_doctor_judges_a_missing_sandbox_by_the_setting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    state: str,
    detail: str,
) -> None:
    install(tmp_path, "claude")
    repo = make_repo(tmp_path / "app", **{"runplan.toml": f'{CHECKED}sandbox = "{mode}"\n'})
    monkeypatch.chdir(repo.path)
    remedy = "" if mode == "none" else "apt install bubblewrap"
    remedy += ', or turn this off: agents.sandbox = "none"' if mode == "auto" else ""
    exit_code = Exit.USAGE if state == "FAIL" else Exit.DONE
    assert call("doctor", "--json") is exit_code
    (check,) = [each for each in json.loads(capsys.readouterr().out) if each["name"] == "sandbox"]
    assert check == {"name": "sandbox", "ok": state != "FAIL", "state": state, "detail": detail, "remedy": remedy}
    assert call("doctor") is exit_code
    lines = [f"{state:<4}  sandbox     {detail}", *([f"{'':<18}-> {remedy}"] if remedy else [])]
    assert "\n".join(lines) in capsys.readouterr().out


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
        (
            {"runplan.toml": JUDGED + 'kind = "script"\nscript = "j.toml"\n'},
            *("verifier", "there is no script j.toml"),
        ),
        (
            {"runplan.toml": JUDGED + 'kind = "command"\nargv = ["sh", "j.sh"]\n'},
            *("verifier", "there is no script j.sh"),
        ),
    ],
)  # fmt: skip
def test_the_doctor_finds_faults_that_would_fail_a_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, str],
    name: str,
    detail: str,
) -> None:
    install(tmp_path, "claude", "make", "sh")
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    repo = make_repo(tmp_path / "app", **files)
    monkeypatch.chdir(repo.path)
    assert call("doctor", "--json") is Exit.USAGE
    faults = [each for each in json.loads(capsys.readouterr().out) if not each["ok"]]
    assert [each["name"] for each in faults] == [name]
    assert detail in faults[0]["detail"]


@pytest.mark.parametrize("argv", ['["./tools/verify.sh"]', '["sh", "tools/verify.sh"]'])
def test_the_doctor_looks_for_a_command_where_the_agent_will_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: str
) -> None:
    install(tmp_path, "claude", "sh")
    settings = f'{JUDGED}kind = "command"\nargv = {argv}\n'
    repo = make_repo(tmp_path / "app", **{"runplan.toml": settings, ".gitignore": "tools/\n"})
    repo.write("tools/verify.sh", "#!/bin/sh\n").chmod(0o755)
    monkeypatch.chdir(repo.path)
    assert call("doctor", "--json") is Exit.USAGE
    (fault,) = [each for each in json.loads(capsys.readouterr().out) if not each["ok"]]
    assert fault["detail"] == "agents.verifier: tools/verify.sh is not on main, so no worktree has it"
    assert fault["remedy"] == "commit it on main, or add it to run.copy"

    repo.commit("Copy it", **{"runplan.toml": f'{settings}[run]\ncopy = ["tools/verify.sh"]\n'})
    assert call("doctor") is Exit.DONE
    repo.commit("Have it", **{"runplan.toml": settings, ".gitignore": ""})
    assert call("doctor") is Exit.DONE


def test_the_doctor_finds_an_agent_without_key_and_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "claude", "codex")
    monkeypatch.chdir(make_repo(tmp_path / "app").path)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name)
    assert call("doctor") is Exit.USAGE
    output = capsys.readouterr().out
    assert "claude: neither ANTHROPIC_API_KEY nor " in output
    one_key = lacks_login(AgentTable(name="qwen", kind="qwen"), {"HOME": str(tmp_path)})
    assert one_key == "OPENAI_API_KEY is not set, and there is no login"
    for login in (".claude/.credentials.json", ".codex/auth.json"):
        (tmp_path / "home" / login).parent.mkdir(parents=True)
        (tmp_path / "home" / login).write_text("{}", encoding="utf-8")
    assert call("doctor") is Exit.DONE


def test_the_doctor_warns_of_a_planner_that_cannot_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "codex")
    settings = '[agents]\nimplementer = "codex"\nverifier = "codex"\n'
    monkeypatch.chdir(make_repo(tmp_path / "app", **{"runplan.toml": settings}).path)
    assert call("doctor") is Exit.DONE
    problem = "`runplan plan` cannot work: claude is not installed or not on PATH"
    assert f"\nWARN  planner     {problem}\n" in capsys.readouterr().out


def test_the_doctor_judges_by_the_committed_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "claude")
    repo = make_repo(tmp_path / "app", **{"runplan.toml": CHECKED, ".gitattributes": "*.toml filter=own\n"})
    repo.git("config", "filter.own.clean", f": >{tmp_path}/harm")  # an agent may have edited its program
    repo.write("runplan.toml", CHECKED.replace('verifier = "claude"', 'verifier = "codex"'))
    monkeypatch.chdir(repo.path)
    assert call("doctor") is Exit.DONE
    output = capsys.readouterr().out
    assert "\nWARN  settings    runplan.toml in the checkout is not committed on main; the version of main" in output
    assert "\n                  -> To use yours: git add runplan.toml && git commit -m" in output
    assert "\nWARN  tests       no tests are run, and every report says so\n" in output
    assert not (tmp_path / "harm").exists()


# --- config --------------------------------------------------------------------------------------------


def test_config_prints_every_key_with_value_and_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = make_repo(
        tmp_path / "app",
        **{"runplan.toml": '[run]\ntarget = "trunk"\n[agents.local]\nkind = "command"\nargv = ["a", "b"]\n'},
    )
    monkeypatch.chdir(repo.path)
    monkeypatch.setenv("RUNPLAN_LIMITS_WALL", "3h")
    assert call("config") is Exit.DONE
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert 'run.target "trunk" runplan.toml' in lines
    assert 'limits.wall "3h" RUNPLAN_LIMITS_WALL' in lines
    assert "run.copy [] default" in lines
    assert 'agents.local.argv ["a", "b"] runplan.toml' in lines
    assert [line.split()[0] for line in lines[: len(KEYS)]] == [key.path for key in KEYS]


def test_config_as_json_holds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(make_repo(tmp_path / "app").path)
    call("config", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert {"key": "limits.wall", "value": "2h", "origin": "default"} in rows
    assert [row["key"] for row in rows] == [key.path for key in KEYS]
