"""The call of bubblewrap, and which setting holds for whom."""

from pathlib import Path

import pytest

from runplan.adapters.configuration.load import Layer, load_settings
from runplan.adapters.configuration.places import user_file
from runplan.domain.errors import SettingsError
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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[tests]\nhome = [".ssh"]', "[tests] home: .ssh holds keys of yours, so only "),
        ('[tests]\nhome = [".aws/credentials"]', "[tests] home: .aws/credentials holds keys"),
        ('[agents]\nmounts = ["/var/run/docker.sock"]', "[agents] mounts: /var/run/docker.sock holds keys"),
        ('[agents]\nmounts = ["/home"]', "[agents] mounts: /home holds keys"),
        ('[tests]\nhome = [".config"]\nmounts = ["/run/postgresql"]', ""),
    ],
)
def test_only_the_users_own_settings_name_a_place_with_keys(tmp_path: Path, text: str, why: str) -> None:
    env = {"HOME": "/home/uma"}
    refused = ""
    try:
        load_settings(tmp_path, env=env, committed=("runplan.toml", text.encode()))
    except SettingsError as error:
        refused = str(error)
    assert refused.startswith(f"runplan.toml: {why}" if why else "")
    assert bool(refused) == bool(why)
    own = user_file({"HOME": str(tmp_path)})
    own.parent.mkdir(parents=True)
    own.write_text(text)
    assert load_settings(tmp_path, env={"HOME": str(tmp_path)}).settings
