"""The call of bubblewrap, and which setting holds for whom."""

import pytest

from runplan.errors import SettingsError
from runplan.settings.load import Layer
from tests.support.builders import settle


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
