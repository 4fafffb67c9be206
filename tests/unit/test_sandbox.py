"""The call of bubblewrap, and which setting holds for whom."""

import errno
import struct
from pathlib import Path

import pytest

from runplan.adapters.configuration.load import Layer, load_settings
from runplan.adapters.configuration.places import user_file
from runplan.adapters.sandbox import bubblewrap
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
    with pytest.raises(SettingsError, match="must be one of auto, bwrap, container, none"):
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


def test_the_rules_of_the_kernel_refuse_three_calls_by_their_numbers() -> None:
    """The source of `no_keys.bpf`: by architecture, the first of add_key, request_key and keyctl, which follow."""
    load, mask, equal, at_least, above, ends = 0x20, 0x54, 0x15, 0x35, 0x25, 0x06
    architectures = {
        0xC000003E: 248,  # x86-64; its other set of numbers has a bit of its own
        0x40000003: 286,  # x86
        0xC00000B7: 217,  # arm64
        0x40000028: 309,  # arm
        0xC00000F3: 217,  # riscv64
        0xC0000015: 269,  # powerpc64le
        0x80000016: 278,  # s390x
    }
    refused, allowed = 0x00050000 | errno.ENOSYS, 0x7FFF0000
    program: list[tuple[int, int, int, int]] = [(load, 0, 0, 4)]
    for architecture, first in architectures.items():
        rules = [(load, 0, 0, 0), *([(mask, 0, 0, 0xBFFFFFFF)] if architecture == 0xC000003E else [])]
        rules += [(at_least, 0, 2, first), (above, 1, 0, first + 2), (ends, 0, 0, refused), (ends, 0, 0, allowed)]
        program += [(equal, 0, len(rules), architecture), *rules]
    program.append((ends, 0, 0, allowed))
    packed = b"".join(struct.pack("<HBBI", *line) for line in program)
    assert Path(bubblewrap.__file__).with_name("no_keys.bpf").read_bytes() == packed
