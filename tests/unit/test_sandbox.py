"""The call of bubblewrap, and which setting holds for whom."""

import pytest

from runplan.agents.invocation import sandbox_command
from runplan.errors import SettingsError
from runplan.settings.load import Layer
from tests.support.builders import settle


def test_writable_mounts_come_after_read_only_ones() -> None:
    call = sandbox_command(
        ("agent", "-x"), bwrap="/usr/bin/bwrap", cwd="/w/a", read_only=("/w", "/repo/.git", "/repo"), writable=("/w/a",)
    )

    assert call[0] == "/usr/bin/bwrap"
    mounts = [(word, call[at + 2]) for at, word in enumerate(call) if "bind" in word]
    readable = [("--ro-bind-try", path) for path in ("/repo", "/repo/.git", "/w")]
    assert mounts == [("--dev-bind", "/"), *readable, ("--bind", "/w/a")]
    assert call[-5:] == ("--chdir", "/w/a", "--", "agent", "-x")


@pytest.mark.parametrize(
    ("agents", "modes"),
    [
        pytest.param({}, ("auto", "auto"), id="default"),
        pytest.param({"sandbox": "bwrap"}, ("bwrap", "bwrap"), id="all"),
        pytest.param({"codex": {"sandbox": "none"}}, ("auto", "none"), id="one without"),
        pytest.param({"sandbox": "none", "codex": {"sandbox": "bwrap"}}, ("none", "bwrap"), id="one with"),
    ],
)
def test_the_table_of_an_agent_overrides_the_setting(agents: dict[str, object], modes: tuple[str, str]) -> None:
    settings = settle([Layer(origin="x", values={"agents": agents})]).settings.agents

    assert (settings.sandbox_of("claude"), settings.sandbox_of("codex")) == modes


def test_another_value_is_refused() -> None:
    with pytest.raises(SettingsError, match="must be one of auto, bwrap, none"):
        settle([Layer(origin="x", values={"agents": {"claude": {"sandbox": "docker"}}})])
