"""Settings from real files and the environment."""

import sys
from pathlib import Path

import pytest

from runplan.adapters.configuration.load import load_settings, load_user
from runplan.adapters.configuration.places import (
    remove_unused_root,
    repository_file,
    state_directory,
    user_file,
    worktree_root,
)
from runplan.domain.errors import RefusedEarly, SettingsError
from runplan.domain.settings.schema import Settings


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user without any settings."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config-home"), "HOME": str(tmp_path / "home")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    return root


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(root: Path, env: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as error:
        load_settings(root, env=env)
    return str(error.value)


def test_environment_beats_repository_beats_user_beats_default(root: Path, env: dict[str, str]) -> None:
    """The order of the public contract, one key per step."""
    user = write(user_file(env), '[run]\ntarget = "u"\nremote = "u"\nauthor = "agent"\n')
    write(root / "runplan.toml", '[run]\ntarget = "r"\nremote = "r"\n')
    env |= {"RUNPLAN_RUN_TARGET": "e"}
    settled = load_settings(root, env=env)

    def seen(key: str) -> tuple[object, str]:
        return settled.values[f"run.{key}"], settled.origins[f"run.{key}"]

    assert seen("target") == ("e", "RUNPLAN_RUN_TARGET")
    assert seen("remote") == ("r", "runplan.toml")
    assert seen("author") == ("agent", str(user))
    assert seen("clean") == ("ignored", "default")


@pytest.mark.parametrize(
    "text",
    [
        *('[daemon]\ngrace = "1h"\n', '[notify]\nurls = ["ntfy://x"]\n', "[web]\nport = 1\n"),
        '[fleet]\ndsn = "postgresql://db/runplan"\n',
    ],
)
def test_user_settings_in_a_repository_are_refused_with_the_file(root: Path, env: dict[str, str], text: str) -> None:
    """They would be shown as effective, and the daemon takes them from the user's file only."""
    write(root / "runplan.toml", f"[run]\n{text}")
    section = text.partition("\n")[0]
    text = refusal(root, env)
    assert text.startswith(f"runplan.toml: {section}: "), text
    assert text.endswith(f"move it to {user_file(env)}")


def test_a_heading_without_keys_sets_nothing_and_is_no_error(root: Path, env: dict[str, str]) -> None:
    write(root / "runplan.toml", "[daemon]\n[notify]\n")
    assert load_settings(root, env=env).settings.notify.command == ""


def test_a_user_sets_the_daemon_and_notifications_in_the_file_or_by_variables(env: dict[str, str]) -> None:
    """Variables that are settings of a run do not count."""
    write(user_file(env), '[daemon]\ngrace = "7s"\n[notify]\ncommand = "mail"\n')
    assert load_user(env).daemon.grace_s == 7
    given = {"RUNPLAN_DAEMON_GRACE": "2s", "RUNPLAN_NOTIFY_COMMAND": "log", "RUNPLAN_AGENTS_VERIFIER": "theirs"}
    assert load_user(env | given).daemon.grace_s == 2
    assert load_user(env | given).notify.command == "log"


def test_an_entry_of_the_urls_is_a_text_or_a_table_with_its_own_notices(env: dict[str, str]) -> None:
    urls = '["tgram://a/b", {url = "slack://x/y", on = ["failed"]}]'
    write(user_file(env), f'[notify]\non = ["done", "failed"]\nurls = {urls}\n[web]\nurl = "https://pc.example/"\n')
    user = load_user(env)
    targets = [(target.scheme, target.on) for target in user.notify.targets]
    assert targets == [("tgram", ("done", "failed")), ("slack", ("failed",))]
    assert (user.web.address, user.web.port, user.web.url) == ("127.0.0.1", 8642, "https://pc.example/")
    assert load_user(env | {"RUNPLAN_NOTIFY_URLS": "ntfy://a, ntfy://b"}).notify.urls == ("ntfy://a", "ntfy://b")


@pytest.mark.parametrize(
    "urls",
    [
        *('["s3cret"]', '["ntfy://s3cret x"]', '"ntfy://s3cret"', '[{url = "ntfy://s3cret", at = 1}]', "[1]"),
        *('[{url = "ntfy://s3cret", on = ["never"]}]', '[{on = ["failed"]}]', '["ntfy://s3cret\\u0000"]'),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error_that_does_not_show_it(env: dict[str, str], urls: str) -> None:
    write(user_file(env), f"[notify]\nurls = {urls}\n")
    with pytest.raises(SettingsError, match=r"\[notify\] urls: (must be a list like|each must be an address)") as error:
        load_user(env)
    assert "s3cret" not in str(error.value)


def test_the_file_at_the_top_hides_the_one_under_config(root: Path, env: dict[str, str]) -> None:
    below = write(root / "config/runplan.toml", '[run]\ntarget = "below"\n')
    assert repository_file(root) == below
    assert load_settings(root, env=env).origins["run.target"] == "config/runplan.toml"
    write(root / "runplan.toml", "[run]\n")
    assert load_settings(root, env=env).settings.run.target == "main"


def test_the_users_file_lies_where_the_platform_keeps_settings(tmp_path: Path) -> None:
    assert user_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/runplan/runplan.toml")
    relative = {"XDG_CONFIG_HOME": "x", "XDG_STATE_HOME": "x"}  # invalid, says the specification
    for place in (user_file, state_directory):
        assert place({"HOME": "/home/uma", **relative}) == place({"HOME": "/home/uma"})
    below = "Library/Application Support" if sys.platform == "darwin" else ".config"
    assert user_file({"HOME": str(tmp_path)}) == tmp_path / below / "runplan" / "runplan.toml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nlanding = \n", "runplan.toml: invalid TOML: Invalid value (at line 2, column 11)"),
        ("a=" + "[" * 50_000, "runplan.toml: invalid TOML: maximum recursion depth exceeded"),
        ("#" * 1_100_000, "runplan.toml: larger than 1048576 bytes; settings are a few kilobytes"),
        ("[run]\ntimezone = 'Mars/Base'\n", "runplan.toml: [run] timezone: unknown time zone 'Mars/Base'"),
        ("[run]\ntimezone = '../x'\n", "runplan.toml: [run] timezone: unknown time zone '../x'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(root: Path, env: dict[str, str], text: str, message: str) -> None:
    write(root / "runplan.toml", text)
    assert refusal(root, env).startswith(message)


def test_a_file_that_is_no_text_is_named(root: Path, env: dict[str, str]) -> None:
    (root / "runplan.toml").write_bytes(b"[run]\n# \xff\n")
    assert refusal(root, env).startswith("runplan.toml: invalid TOML: 'utf-8' codec can't decode byte 0xff")


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(root: Path, env: dict[str, str]) -> None:
    (root / "runplan.toml").write_bytes(b'\xef\xbb\xbf[run]\r\ntarget = "trunk"\r\n')
    assert load_settings(root, env=env).settings.run.target == "trunk"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("RUNPLAN_RUN_LANDIN", "pr", "RUNPLAN_RUN_LANDIN: unknown setting; did you mean RUNPLAN_RUN_LANDING?"),
        ("RUNPLAN_TEST", "x", "RUNPLAN_TEST: unknown setting; did you mean RUNPLAN_"),
        ("RUNPLAN_LIMITS_TOKENS", "many", "RUNPLAN_LIMITS_TOKENS: [limits] tokens: must be a whole number"),
        ("RUNPLAN_LIMITS_USD", "nan", "RUNPLAN_LIMITS_USD: [limits] usd: must be a number, 0 or more"),
        ("RUNPLAN_RUN_MAIN_PROTECTED", "perhaps", "RUNPLAN_RUN_MAIN_PROTECTED: [run] main_protected: must be"),
    ],
)
def test_a_variable_of_no_use_is_named(root: Path, env: dict[str, str], name: str, text: str, message: str) -> None:
    assert refusal(root, env | {name: text}).startswith(message)


@pytest.mark.parametrize(
    "name", [*("ROLE", "PLAN", "PHASE", "RUN", "ATTEMPT", "PROMPT", "RETURN", "AGENT", "DISPATCH", "CYCLE")]
)
def test_variables_of_agents_are_no_settings(root: Path, env: dict[str, str], name: str) -> None:
    settled = load_settings(root, env=env | {f"RUNPLAN_{name}": "1"})
    assert set(settled.origins.values()) == {"default"}


@pytest.mark.parametrize(
    ("written", "below"),
    [("~/.cache/wt", "home/.cache/wt"), ("~", "home"), ("../wt", "repository/../wt"), ("/abs/wt", "/abs/wt")],
)
def test_the_worktree_root_is_found_from_home_or_repository(
    root: Path, env: dict[str, str], tmp_path: Path, written: str, below: str
) -> None:
    settings = load_settings(root, env=env | {"RUNPLAN_RUN_WORKTREES": written}).settings
    assert worktree_root(root, settings, env) == tmp_path / below


@pytest.mark.parametrize(
    ("checkout", "below"),
    [
        ("code/app", "code/app.runplan"),
        ("code/.dotfiles", "home/runplan/dotfiles"),
        (".hidden/app", "home/runplan/app"),
        ("/proc/none/app", "home/runplan/app"),
    ],
)
def test_worktrees_are_beside_the_checkout_or_in_the_home_and_never_hidden(
    env: dict[str, str], tmp_path: Path, checkout: str, below: str
) -> None:
    if not checkout.startswith("/proc"):  # a directory in which nobody can write
        (tmp_path / checkout).mkdir(parents=True)
    place = worktree_root(tmp_path / checkout, Settings(), env)
    assert place == tmp_path / below
    place.mkdir(parents=True)
    remove_unused_root(place, Settings())
    assert not place.exists()
    assert not (tmp_path / "home/runplan").exists()


@pytest.mark.parametrize("checkout", ["/", "/.home"])
def test_worktrees_are_by_default_never_in_the_checkout(checkout: str) -> None:
    with pytest.raises(RefusedEarly, match=r"set run\.worktrees to a directory outside of it"):
        worktree_root(Path(checkout), Settings(), {"HOME": "/.home"})
