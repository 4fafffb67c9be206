"""Settings: layers over defaults. Every error names its place and the valid value."""

from typing import Any

import pytest

from runplan.adapters.configuration.load import Layer, merge_layers
from runplan.domain.errors import SettingsError
from runplan.domain.settings.schema import KEYS, AgentTable, Settings, format_duration, is_allowed_host, parse_duration
from runplan.domain.settings.toolchain import read_devcontainer


def settled(**values: Any) -> Settings:
    return merge_layers([Layer(origin="runplan.toml", values=values)]).settings


def refusal(**values: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        settled(**values)
    return str(raised.value)


def test_without_any_layer_every_key_has_its_default() -> None:
    found = merge_layers([])
    assert found.settings == Settings()
    assert found.values == {key.path: key.written for key in KEYS}
    assert set(found.origins.values()) == {"default"}


def test_a_default_is_a_value_that_could_be_written() -> None:
    assert all(key.why for key in KEYS)
    assert {key.path: key.read(key.written) for key in KEYS} == {key.path: key.default for key in KEYS}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"run": {"landin": "pr"}}, "runplan.toml: [run] landin: unknown key; did you mean 'landing'?"),
        ({"run": {"timeout": "5m"}}, "runplan.toml: [run] timeout: unknown key; it belongs to [tests]"),
        ({"runs": {}}, "runplan.toml: runs: unknown section; did you mean 'run'?"),
        ({"landing": "pr"}, "runplan.toml: landing: unknown section; it belongs to [run]"),
        ({"run": "pr"}, "runplan.toml: run: must be a table; write [run] above its keys"),
        ({"run": {"landing": "merge"}}, "must be one of cherry-pick, pr, direct, not 'merge'"),
        ({"run": {"landing": 1}}, "[run] landing: must be text in quotes, not 1"),
        ({"run": {"main_protected": "yes"}}, "must be true or false, not 'yes'"),
        ({"run": {"max_fix_cycles": -1}}, "[run] max_fix_cycles: must be a whole number, 0 or more, not -1"),
        ({"run": {"max_fix_cycles": True}}, "must be a whole number, 0 or more, not True"),
        ({"run": {"copy": ".env"}}, "must be a list of texts"),
        ({"run": {"copy": ["../x"]}}, "must be a path inside the repository, not '../x'"),
        ({"run": {"target": "a b"}}, "[run] target: 'a b' is not a valid branch name"),
        ({"run": {"branch_prefix": "a..b/"}}, "is not a valid beginning of a branch name"),
        ({"run": {"remote": " "}}, "[run] remote: must not be empty"),
        ({"limits": {"wall": 7200}}, 'must be a duration like "90s", "15m" or "1h30m", not 7200'),
        ({"limits": {"wall": "0s"}}, "[limits] wall: must be more than 0"),
        ({"limits": {"usd": "1"}}, "[limits] usd: must be a number, 0 or more, not '1'"),
        ({"limits": {"usd": float("nan")}}, "0 or more, not "),
        ({"tests": {"summary": "("}}, "[tests] summary: is not a regular expression"),
        ({"paths": {"plans": "/abs"}}, "must be a path inside the repository, not '/abs'"),
        ({"paths": {"reports": "a\nb"}}, r"must be a path inside the repository, not 'a\nb'"),
        ({"paths": {"reports": "docs/.Git"}}, "must be a path inside the repository, not 'docs/.Git'"),
        ({"run": {"worktrees": "/a\nb"}}, r"must be a printable path, not '/a\nb'"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    """Every message begins with the file and says what would be right."""
    raised = refusal(**values)
    assert raised.startswith("runplan.toml: ")
    assert message in raised


@pytest.mark.parametrize(
    ("text", "expected"), [("0.5s", 0.5), ("90s", 90), ("2h", 7200), ("1h30m", 5400), (" 2H ", 7200), ("0s", 0)]
)
def test_durations_are_read_in_seconds(text: str, expected: float) -> None:
    assert parse_duration(text) == parse_duration(format_duration(expected)) == expected
    for invalid in ("", " ", "15", "m", "-5m", "1.5h", "30m1h", "1h 30m", "soon"):
        assert parse_duration(invalid) is None


def test_zero_means_no_silence_limit_and_a_whole_number_of_dollars_is_money() -> None:
    limits = settled(limits={"silence": "0s", "usd": 5}).limits
    assert (limits.silence_s, limits.usd) == (0, 5.0)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("run.main_protected", "True", True),
        ("run.main_protected", "0", False),
        ("run.main_protected", "maybe", "maybe"),
        ("limits.tokens", "3", 3),
        ("limits.tokens", "three", "three"),
        ("limits.usd", "2.5", 2.5),
        ("run.copy", ".env, a/b ,", [".env", "a/b"]),
        ("tests.command", "make test", "make test"),
        ("limits.wall", "5m", "5m"),
    ],
)
def test_text_of_a_variable_becomes_the_type_of_its_key(path: str, text: str, expected: object) -> None:
    """Text that does not fit is left for the check to refuse."""
    (key,) = (key for key in KEYS if key.path == path)
    assert key.from_text(text) == expected


# --- agents --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (
            {"local": {"kind": "command", "argv": ["python3", "agent.py"], "env": ["API_KEY"]}},
            AgentTable(name="local", kind="command", argv=("python3", "agent.py"), env=("API_KEY",)),
        ),
        ({}, AgentTable(name="codex", kind="codex")),
        ({"claude": {"env": ["MODEL"]}}, AgentTable(name="claude", kind="claude", env=("MODEL",))),
        (
            {"deep": {"kind": "claude", "model": "opus", "args": ["--max-turns", "9"]}},
            AgentTable(name="deep", kind="claude", model="opus", args=("--max-turns", "9")),
        ),
    ],
    ids=["a command", "a built-in kind needs no table", "a table of its name no kind", "how it is called"],
)
def test_a_table_makes_an_agent_that_roles_may_name(tables: dict[str, Any], expected: AgentTable) -> None:
    assert settled(agents={"implementer": expected.name, **tables}).agents.agent(expected.name) == expected


def test_layers_complete_one_agent_together() -> None:
    found = merge_layers(
        [
            Layer(origin="user", values={"agents": {"local": {"kind": "command", "argv": ["a"]}}}),
            Layer(origin="runplan.toml", values={"agents": {"local": {"argv": ["b"]}}}),
        ]
    )
    assert found.settings.agents.tables["local"].argv == ("b",)
    assert found.origins["agents.local.kind"] == "user"


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({"implementer": "hal"}, "[agents] implementer: unknown agent 'hal'; known agents: aider, claude, codex,"),
        (
            {"verifier": "hal", "own": {"kind": "command", "argv": ["x"]}},
            "[agents] verifier: unknown agent 'hal'; known agents: own, aider, claude,",
        ),
        ({"planner": ""}, "[agents] planner: must not be empty"),
        ({"implementr": "claude"}, "[agents] implementr: unknown key; did you mean 'implementer'?"),
        ({"own": {"kind": "command", "argvs": ["x"]}}, "[agents.own] argvs: unknown key; did you mean 'argv'?"),
        ({"own": {"kind": "command", "argv": ["x"], "args": ["y"]}}, "a command agent has no model"),
        ({"own": {"kind": "claude", "model": ""}}, "[agents.own] model: must not be empty"),
        ({"own": {"kind": "magic"}}, "[agents.own]: kind must be one of aider, claude, codex,"),
        ({"own": {"argv": ["x"]}}, "[agents.own]: kind must be one of aider, claude, codex,"),
        ({"own": {"kind": "command"}}, "[agents.own]: a command needs argv"),
        ({"own": {"kind": "command", "argv": "x y"}}, "[agents.own] argv: must be a list of texts"),
        ({"own": {"kind": "script"}}, "[agents.own]: a script needs script"),
        ({"implementer": "command"}, "'command' needs a table [agents.command]: a command needs argv"),
        ({"verifier": {"kind": "codex"}}, "[agents] verifier: must be text in quotes, not {'kind': 'codex'}"),
    ],
)
def test_an_agent_that_cannot_be_dispatched_is_refused(agents: dict[str, Any], message: str) -> None:
    assert message in refusal(agents=agents)


def test_a_network_is_all_none_or_hosts() -> None:
    assert settled(agents={"network": "none"}).agents.network == "none"
    hosts = ("*.example.com", "b.example:8443")
    assert settled(tests={"network": [*hosts]}).tests.network == hosts
    for wrong in ("some", "example.com", ["all"], ["example.com", "none"], ["http://example.com"], ["*"], 1):
        assert "all, none, or " in refusal(agents={"network": wrong})


@pytest.mark.parametrize(
    ("name", "port", "is_allowed"),
    [
        *(("example.com", 443, True), ("example.com", 80, True), ("a.b.example.org", 443, True)),
        *(("a.example.com", 443, False), ("example.org", 443, False), ("badexample.org", 443, False)),
        *(("one.port", 8443, True), ("one.port", 443, False)),
    ],
)
def test_a_list_of_hosts_names_whole_hosts_and_all_below_a_star(name: str, port: int, *, is_allowed: bool) -> None:
    assert is_allowed_host(name, port, ("example.com", "*.example.org", "one.port:8443")) is is_allowed


def test_the_image_of_a_devcontainer_is_found() -> None:
    assert read_devcontainer('{\n // ours\n "image": "a/b//c:1", /* x */\n}') == {"image": "a/b//c:1"}
    own = {"build": ".devcontainer/Dockerfile", "context": ".devcontainer"}
    assert read_devcontainer('{"build": {"dockerfile": "Dockerfile",},}') == own
    whole = {"build": "Dockerfile", "context": "."}
    assert read_devcontainer('{"build": {"dockerfile": "../Dockerfile", "context": ".."}}') == whole
    assert read_devcontainer('{"dockerFile": "../Dockerfile", "context": ".."}') == whole
    for other in ("", "[]", "{", '{"dockerComposeFile": "x"}', '{"build": {"dockerfile": "../../Dockerfile"}}'):
        assert read_devcontainer(other) == {}


def test_a_container_is_a_table_of_its_own() -> None:
    found = settled(agents={"sandbox": "container", "container": {"image": "x", "mounts": ["/opt"]}})
    assert (found.agents.container.image, found.agents.container.mounts) == ("x", ("/opt",))
    assert found.agents.tables == {}
    assert "did you mean 'image'?" in refusal(agents={"container": {"imag": "x"}})
