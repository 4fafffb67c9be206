"""How each agent is called: argv by role, its own keys only, and the account that it will use."""

import json
import os
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.clis.mini import LONGEST_ARGUMENT
from runplan.adapters.agents.invocation import Agents, require_agents
from runplan.adapters.agents.prompts import SMALL_DIFF, Brief, verify_prompt
from runplan.adapters.configuration.load import Layer
from runplan.adapters.sandbox.engines import is_used
from runplan.domain.errors import RefusedEarly
from runplan.domain.names import DIFF_FILE
from runplan.domain.run.events import DispatchStarted, PhaseChosen
from runplan.domain.run.kinds import PLANNING, Role
from runplan.domain.settings.schema import AgentsSettings, CheckSettings
from tests.support.builders import settle
from tests.support.samples import FOLDERS, expected
from tests.support.tools import write_script

#: Every key of every agent, and two that no agent may see.
KEYS = {key: "k" for name in FOLDERS for key in expected(name)["calls"]["keys"]} | {
    "GH_TOKEN": "forge",
    "AWS_SECRET_ACCESS_KEY": "cloud",
}


def calls(name: str) -> dict[str, Any]:
    """The expected call, from the folder of its samples."""
    reported: dict[str, Any] = expected(name)["calls"]
    return reported


def settings(**agents: object) -> AgentsSettings:
    values = {"agents": {"sandbox": "none", **agents}}
    return settle([Layer(origin="runplan.toml", values=values)]).settings.agents


class Call:
    """One agent, called once."""

    def __init__(
        self, directory: Path, name: str, role: Role = Role.IMPLEMENT, *, caller: dict[str, str], **table: Any
    ) -> None:
        directory.mkdir(exist_ok=True)
        (directory / "prompt.md").write_text(table.pop("prompt", "Do it."), encoding="utf-8")
        guarded = table.pop("guarded", ())
        agents = Agents(
            settings(**({name: table} if table else {})), root=directory, plan="plans/x.md", run="r1", caller=caller
        )
        self.directory = directory
        started = DispatchStarted(id="r1.1.1.implement.1", role=role, agent=name, cycle=1, phase="1")
        self.argv, self.env, self.reader = agents.launch(
            started, attempt=1, directory=directory, cwd=directory, guarded=guarded
        )


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(("role", "line"), [(Role.FIX, "writing"), (Role.VERIFY, "reading")])
def test_the_command_line_is_that_of_the_role(tmp_path: Path, name: str, role: Role, line: str) -> None:
    call = Call(tmp_path, name, role, caller={})
    reported = " ".join(word.replace(" ", "_") for word in call.argv).replace(str(tmp_path), "DIR")
    assert reported == calls(name)[line].replace("\n", " ")
    assert call.reader == name


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("role", PLANNING)
def test_a_planning_agent_reads_as_a_verifier_does(tmp_path: Path, name: str, role: Role) -> None:
    """It has the same arguments, variables and files; only there is no diff."""

    def called(role: Role) -> tuple[list[str], dict[str, str], list[str]]:
        call = Call(tmp_path, name, role, caller=KEYS)
        files = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.rglob("*")) if path.is_file()]
        return list(call.argv), call.env | {"RUNPLAN_ROLE": ""}, files

    argv, env, files = called(Role.VERIFY)
    assert called(role) == ([word for word in argv if word not in ("--read", DIFF_FILE)], env, files)


def test_arguments_of_the_settings_come_after_those_that_they_may_replace(tmp_path: Path) -> None:
    call = Call(tmp_path, "codex", caller={"OPENAI_API_KEY": "k"}, args=["-c", 'model_provider="mine"'])
    assert call.argv.index('model_provider="mine"') > call.argv.index('model_provider="runplan"')
    assert call.argv[-1] == "-", "the prompt comes from standard input"


@pytest.mark.parametrize("name", FOLDERS)
def test_model_and_further_arguments_come_from_the_table(tmp_path: Path, name: str) -> None:
    call = Call(tmp_path, name, caller={}, model="openai/x", args=["--extra", "1"], argv=["/opt/agent", "sub"])
    flag = calls(name)["model"]
    assert call.argv[:2] == ("/opt/agent", "sub")
    assert call.argv[call.argv.index(flag) + 1] == "openai/x"
    assert call.argv[call.argv.index("--extra") + 1] == "1"


def test_the_task_is_described_in_the_variables_of_the_contract(tmp_path: Path) -> None:
    env = Call(tmp_path, "claude", Role.VERIFY, caller={}).env
    assert {name: value for name, value in env.items() if name.startswith("RUNPLAN_")} == {
        "RUNPLAN_DISPATCH": "r1.1.1.implement.1",
        "RUNPLAN_AGENT": "1",
        "RUNPLAN_ROLE": "verify",
        "RUNPLAN_PLAN": "plans/x.md",
        "RUNPLAN_PHASE": "1",
        "RUNPLAN_RUN": "r1",
        "RUNPLAN_ATTEMPT": "1",
        "RUNPLAN_CYCLE": "1",
        "RUNPLAN_PROMPT": str(tmp_path / "prompt.md"),
        "RUNPLAN_RETURN": str(tmp_path / "own/return.json"),
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_an_agent_sees_its_own_keys_only(tmp_path: Path, name: str) -> None:
    call = Call(tmp_path, name, caller=KEYS)
    assert {key for key in call.env if key in KEYS} == set(calls(name)["keys"])


def test_tests_and_setup_see_no_key_and_no_token_but_those_of_tests_env(tmp_path: Path) -> None:
    """They run code that an agent wrote."""
    caller = {**KEYS, "PATH": "/bin", "SSH_AUTH_SOCK": "s", "NPM_TOKEN": "n", "RUNPLAN_TESTS_COMMAND": "make"}
    tests = CheckSettings(env=("NPM_TOKEN", "GH_TOKEN"))
    agents = Agents(settings(), root=tmp_path, plan="p", run="r", caller=caller, tests=tests)
    for role in (Role.GATE, Role.BASELINE, Role.SETUP):
        started = DispatchStarted(id="r.1", role=role, cycle=1, phase="1")
        _, seen = agents.command("make test", started, directory=tmp_path, cwd=tmp_path, writable=())
        assert seen.keys() & caller.keys() == {"PATH", "NPM_TOKEN"}


def test_aider_reads_the_plan_and_the_settings_and_does_not_edit_them(tmp_path: Path) -> None:
    """It adds every file that the prompt names to those it edits, except files that it was told to read."""
    guarded = ("plans/x.md", "config/runplan.toml")
    argv = Call(tmp_path, "aider", caller={}, guarded=guarded).argv
    read = tuple(argv[place + 1] for place, word in enumerate(argv) if word == "--read")
    assert read == guarded


@pytest.mark.parametrize(("diff", "is_read"), [("+x\n", False), ("+x\n" * SMALL_DIFF, True)], ids=["small", "large"])
def test_aider_gets_the_diff_once(tmp_path: Path, diff: str, is_read: bool) -> None:
    read = PhaseChosen(tip="c", phase="1", title="T", text="", items=(), touches=())
    brief = Brief(plan="plans/x.md", chosen=read, worktree="/w", branch="b", test_command="")
    prompt = verify_prompt("{{changed}}\n{{diff}}\n", brief, diff=diff, changed=["a"], gates=[])
    argv = Call(tmp_path, "aider", Role.VERIFY, caller={}, prompt=prompt).argv
    assert (DIFF_FILE in argv, "--dry-run" in argv) == (is_read, True)


def test_claude_keeps_the_servers_helper_and_address_of_the_user(tmp_path: Path) -> None:
    """Those of the repository are withheld, and the flags that do it would withhold the user's as well."""
    own = {"apiKeyHelper": "my-helper", "env": {"ANTHROPIC_BASE_URL": "https://gw"}}
    at_home(tmp_path / "uma", ".claude/settings.json", json.dumps(own))
    caller = at_home(tmp_path / "uma", ".claude.json", '{"mcpServers": {"mine": {"command": "x"}}}')
    argv = Call(tmp_path / "a", "claude", caller=caller).argv
    assert argv[argv.index("--mcp-config") + 1] == str(tmp_path / "uma/.claude.json")
    given = json.loads(argv[argv.index("--settings") + 1])
    assert (given["apiKeyHelper"], given["awsAuthRefresh"]) == ("my-helper", "")
    assert given["env"] == {"ANTHROPIC_BASE_URL": "https://gw"}


# --- configuration -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
def test_the_users_own_configuration_is_used(tmp_path: Path, name: str) -> None:
    variable = calls(name)["folder"]
    call = Call(tmp_path, name, caller={"HOME": "/home/uma", variable: "/home/uma/own"})
    assert call.env[variable] == "/home/uma/own"


#: The files in the home of a user who has chosen a login or a provider, by program.
CONFIGURED = {
    "claude": (".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "https://gw"}}'),
    "codex": (".codex/auth.json", '{"tokens": {"access_token": "x"}}'),
    "gemini": (".gemini/settings.json", '{"security": {"auth": {"selectedType": "oauth-personal"}}}'),
    "opencode": (".config/opencode/opencode.json", "{}"),
    "qwen": (".qwen/settings.json", '{"security": {"auth": {"selectedType": "qwen-oauth"}}}'),
    "aider": (".aider.conf.yml", "model: x\n"),
    "mini": (".config/mini-swe-agent/.env", "MSWEA_MODEL_NAME='openai/x'\n"),
}


def at_home(place: Path, name: str, text: str) -> dict[str, str]:
    """The environment of a user with every key, and this file in their home."""
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text, encoding="utf-8")
    return {**KEYS, "HOME": str(place)}


@pytest.mark.parametrize("name", list(CONFIGURED))
def test_a_configuration_of_the_users_own_is_used_although_there_is_a_key(tmp_path: Path, name: str) -> None:
    call = Call(tmp_path / "a", name, caller=at_home(tmp_path / "uma", *CONFIGURED[name]))
    assert "--auth-type" not in call.argv
    assert 'model_provider="runplan"' not in call.argv
    assert not (tmp_path / "a/own/.gemini").exists()


GATEWAY = """
model = "gw-model"
model_provider = "gw"
[model_providers.gw]
base_url = "https://gw.example/v1"
env_key = "GATEWAY_KEY"
"""


def test_the_key_of_the_users_own_codex_gateway_is_passed_on(tmp_path: Path) -> None:
    caller = at_home(tmp_path / "uma", ".codex/config.toml", GATEWAY) | {"GATEWAY_KEY": "gw"}
    call = Call(tmp_path / "a", "codex", caller=caller)
    assert call.env["GATEWAY_KEY"] == "gw"
    assert 'model_provider="runplan"' not in call.argv


def reported(place: Path, kind: str, caller: dict[str, str], **table: Any) -> tuple[str, ...]:
    named = settings(it={"kind": kind, **table}).agent("it")
    found = agent_of(kind).describe_account(named, {"HOME": str(place), **caller})
    login, address, model, bill = found.split("; ")
    parts = ((login, "login "), (address, "address "), (model, "model "), (bill, "billed to the account of "))
    return tuple(text.removeprefix(name) for text, name in parts)


ANTHROPIC, OPENAI = "ANTHROPIC_API_KEY", "OPENAI_API_KEY"
KEY = {ANTHROPIC: "k", OPENAI: "k"}
AT_GATEWAY = {"ANTHROPIC_BASE_URL": "https://gw"}
OWN_CLAUDE = {".claude/settings.json": json.dumps({"model": "opus", "env": AT_GATEWAY})}
OWN, DEFAULT, ADDRESS = "of its own configuration", "its default", {"OPENAI_BASE_URL": "https://other"}
BOTH = KEY | ADDRESS

OPENAI_LOGIN = {"selectedType": "openai", "apiKey": "k", "baseUrl": "https://gw"}
OWN_QWEN = {".qwen/settings.json": json.dumps({"security": {"auth": OPENAI_LOGIN}, "model": {"name": "mine"}})}
GATEWAYS = {"openai": [{"id": "mine", "baseUrl": "https://gw", "envKey": "GW_KEY"}]}
QWEN_PROVIDER = {
    ".qwen/settings.json": json.dumps(
        {"security": {"auth": {"selectedType": "openai"}}, "model": {"name": "mine"}, "modelProviders": GATEWAYS}
    )
}
QWEN_LOGIN = {".qwen/settings.json": '{"security": {"auth": {"selectedType": "qwen-oauth"}}}'}
OWN_MINI = {
    ".config/mini-swe-agent/.env": "MSWEA_MODEL_NAME='openai/mine'\nOPENAI_API_KEY='k'\nOPENAI_BASE_URL='https://gw'\n"
}


@pytest.mark.parametrize(
    ("kind", "files", "caller", "account"),
    [
        ("claude", {}, {}, (OWN, DEFAULT, DEFAULT, "that login")),
        ("claude", {}, KEY, (ANTHROPIC, DEFAULT, DEFAULT, ANTHROPIC)),
        ("claude", OWN_CLAUDE, KEY | {"ANTHROPIC_BASE_URL": "unused"}, (ANTHROPIC, "https://gw", "opus", ANTHROPIC)),
        ("claude", {".claude/settings.json": "{}"}, KEY | AT_GATEWAY, (ANTHROPIC, "https://gw", OWN, ANTHROPIC)),
        ("codex", {}, BOTH, (OPENAI, "https://other", DEFAULT, OPENAI)),
        ("codex", {".codex/config.toml": GATEWAY}, BOTH, (OWN, "https://gw.example/v1", "gw-model", "that login")),
        ("codex", {".codex/auth.json": "{}"}, KEY, (OWN, OWN, OWN, "that login")),
        ("aider", {}, KEY, (OPENAI, DEFAULT, DEFAULT, OPENAI)),
        # As seen with the real programs: the environment wins over the key and address in their settings.
        ("qwen", {}, BOTH, (OPENAI, "https://other", DEFAULT, OPENAI)),
        ("qwen", OWN_QWEN, {}, (OWN, "https://gw", "mine", "that login")),
        ("qwen", OWN_QWEN, ADDRESS, (OWN, "https://other", "mine", "that login")),
        ("qwen", OWN_QWEN, BOTH | {"OPENAI_MODEL": "unused"}, (OPENAI, "https://other", "mine", OPENAI)),
        ("qwen", QWEN_PROVIDER, BOTH, (OWN, "https://gw", "mine", "that login")),
        ("qwen", QWEN_LOGIN, BOTH, (OWN, OWN, OWN, "that login")),
        ("mini", OWN_MINI, {}, (OWN, "https://gw", "openai/mine", "that login")),
        ("mini", OWN_MINI, BOTH, (OPENAI, "https://other", "openai/mine", OPENAI)),
        ("mini", OWN_MINI, BOTH | {"MSWEA_MODEL_NAME": "anthropic/x"}, (ANTHROPIC, OWN, "anthropic/x", ANTHROPIC)),
    ],
)
def test_an_account_says_what_the_program_will_use(
    tmp_path: Path, kind: str, files: dict[str, str], caller: dict[str, str], account: tuple[str, str, str, str]
) -> None:
    for name, text in files.items():
        at_home(tmp_path, name, text)
    assert reported(tmp_path, kind, caller) == account
    assert reported(tmp_path, kind, caller, model="big")[2] == "big"


def test_mini_without_a_model_is_refused_before_any_work(tmp_path: Path) -> None:
    write_script(tmp_path / "bin/mini", "true")
    caller = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), **KEY}
    both = {"implementer": "mini", "verifier": "mini"}
    with pytest.raises(RefusedEarly, match=r"agents\.implementer: mini has no model, .*\[agents\.mini\]"):
        require_agents(settings(**both), root=tmp_path, caller=caller)
    require_agents(settings(**both, mini={"kind": "mini", "model": "openai/x"}), root=tmp_path, caller=caller)
    require_agents(settings(**both), root=tmp_path, caller={**caller, "MSWEA_MODEL_NAME": "openai/x"})
    at_home(tmp_path, *CONFIGURED["mini"])
    require_agents(settings(**both), root=tmp_path, caller=caller)


def test_codex_without_the_key_of_its_provider_is_refused(tmp_path: Path) -> None:
    write_script(tmp_path / "bin/codex", "true")
    at_home(tmp_path, ".codex/config.toml", GATEWAY)
    caller = {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}
    both = {"implementer": "codex", "verifier": "codex"}
    refusal = r"agents\.implementer: codex needs GATEWAY_KEY, .* not set; set GATEWAY_KEY in this terminal"
    with pytest.raises(RefusedEarly, match=refusal):
        require_agents(settings(**both), root=tmp_path, caller=caller)
    require_agents(settings(**both), root=tmp_path, caller={**caller, "GATEWAY_KEY": "gw"})


def test_codex_gets_the_name_of_its_key_variable(tmp_path: Path) -> None:
    def provider(where: str, **caller: str) -> Any:
        argv = Call(tmp_path / where, "codex", caller=caller).argv
        options = [value for flag, value in pairwise(argv) if flag == "-c"]
        settings = tomllib.loads("\n".join(options))
        return settings["model_providers"][settings["model_provider"]]

    reported = provider("a", OPENAI_API_KEY="k")
    assert (reported["env_key"], reported["base_url"]) == ("OPENAI_API_KEY", "https://api.openai.com/v1")
    assert reported["wire_api"] == "responses"
    other = provider("b", CODEX_API_KEY="k", OPENAI_BASE_URL='http://127.0.0.1:1/"v1')
    assert (other["env_key"], other["base_url"]) == ("CODEX_API_KEY", 'http://127.0.0.1:1/"v1')


def test_no_key_is_written_to_a_file(tmp_path: Path) -> None:
    secret = {name: f"secret-{name}" for name in KEYS}
    for name in FOLDERS:
        Call(tmp_path / name, name, caller=secret, model="openai/x")
    written = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any("secret-" in text for text in written)


def test_gemini_and_qwen_are_given_their_settings(tmp_path: Path) -> None:
    env = Call(tmp_path, "gemini", caller=KEYS).env
    gemini = json.loads((tmp_path / "own/.gemini/settings.json").read_text(encoding="utf-8"))
    assert gemini["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert env["GEMINI_CLI_HOME"] == str(tmp_path / "own")
    env = Call(tmp_path, "qwen", caller={}).env
    assert json.loads((tmp_path / "qwen.json").read_text(encoding="utf-8"))["general"]["gitCoAuthor"] is False
    assert env["QWEN_CODE_SYSTEM_SETTINGS_PATH"] == str(tmp_path / "qwen.json")
    assert Call(tmp_path, "qwen", caller=KEYS).argv[1:3] == ("--auth-type", "openai")


def test_opencode_has_a_database_for_each_dispatch(tmp_path: Path) -> None:
    """With one for all, those that start at the same time fail: "database is locked"."""
    paths = [Call(tmp_path / lane, "opencode", caller={}).env["OPENCODE_DB"] for lane in ("a", "b")]
    assert paths == [str(tmp_path / lane / "own/opencode.db") for lane in ("a", "b")]


def test_opencode_may_neither_edit_nor_run_commands_when_it_judges(tmp_path: Path) -> None:
    def configured(where: str, role: Role, **caller: str) -> Any:
        call = Call(tmp_path / where, "opencode", role, caller=caller, model="openai/gpt")
        return json.loads((tmp_path / where / "opencode.json").read_text(encoding="utf-8")), call.env

    judging, env = configured("v", Role.VERIFY)
    assert judging["permission"] == {"bash": "deny", "edit": "deny"}
    assert env["OPENCODE_CONFIG"] == str(tmp_path / "v/opencode.json")
    writing, _ = configured("w", Role.FIX, OPENAI_BASE_URL="http://127.0.0.1:1/v1", OPENAI_API_KEY="k")
    assert "permission" not in writing
    options = writing["provider"]["openai"]["options"]
    assert options == {"baseURL": "http://127.0.0.1:1/v1", "apiKey": "{env:OPENAI_API_KEY}"}


@pytest.mark.parametrize(
    ("user", "role", "reported"), [(0, Role.FIX, True), (0, Role.VERIFY, False), (1000, Role.FIX, False)]
)
def test_claude_gets_the_sandbox_variable_only_as_root_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, role: Role, reported: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert ("IS_SANDBOX" in Call(tmp_path, "claude", role, caller={}).env) is reported


def test_mini_gets_a_short_prompt_as_an_argument_and_is_pointed_to_a_long_one(tmp_path: Path) -> None:
    whole = "ä" * (LONGEST_ARGUMENT // 2)
    assert Call(tmp_path / "a", "mini", caller={}, prompt=whole, model="x").argv[-1] == whole
    pointed = Call(tmp_path / "b", "mini", caller={}, prompt=f"{whole}x", model="x").argv[-1]
    assert str(tmp_path / "b/prompt.md") in pointed
    assert len(pointed) < 1_000


# --- refusals -----------------------------------------------------------------------------


def test_a_start_with_an_agent_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    write_script(tmp_path / "bin/claude", "true")
    with pytest.raises(RefusedEarly, match=r"agent-missing: agents\.verifier: codex is not installed"):
        require_agents(settings(), root=tmp_path, caller={"PATH": str(tmp_path / "bin")})
    require_agents(settings(verifier="claude"), root=tmp_path, caller={"PATH": str(tmp_path / "bin")})


# --- versions -----------------------------------------------------------------------------------------


def test_a_version_is_asked_once_per_binary_and_again_when_it_changes(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    write_script(tmp_path / "bin/claude", f'echo "$*" >> {asked}; echo "2.1.197 (Claude Code)"')
    caller = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    agents = Agents(settings(deep={"kind": "claude"}), root=tmp_path, plan="p", run="r", caller=caller)
    assert [agents.version("claude"), agents.version("deep")] == ["2.1.197", "2.1.197"]
    assert asked.read_text(encoding="utf-8") == "--version\n"
    write_script(tmp_path / "bin/claude", 'echo "claude 3.0"')
    os.utime(tmp_path / "bin/claude", (1, 1))
    assert agents.version("claude") == "3.0"


@pytest.mark.parametrize("text", ["exit 3", "echo no number", "echo 1.2 >&2"])
def test_a_program_without_version_output_has_no_version(tmp_path: Path, text: str) -> None:
    write_script(tmp_path / "bin/codex", text)
    caller = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    agents = Agents(settings(), root=tmp_path, plan="p", run="r", caller=caller)
    assert agents.version("codex") == agents.version("gemini") == ""


def test_a_custom_command_is_not_asked_for_its_version(tmp_path: Path) -> None:
    write_script(tmp_path / "bin/own", f"touch {tmp_path / 'ran'}")
    own = {"kind": "command", "argv": [str(tmp_path / "bin/own")]}
    agents = Agents(settings(own=own), root=tmp_path, plan="p", run="r", caller={"PATH": "/usr/bin:/bin"})
    assert agents.version("own") == ""
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("code", "used"), [(0, True), (1, False)])
def test_sandbox_auto_is_used_where_bwrap_works(tmp_path: Path, code: int, used: bool) -> None:
    write_script(tmp_path / "bwrap", f"exit {code}")
    env = {"PATH": str(tmp_path)}
    assert [is_used(mode, env) for mode in ("auto", "bwrap", "none")] == [used, True, False]
