"""Service files are valid for their service manager."""

import configparser
import os
import plistlib
from pathlib import Path

import pytest

from runplan.domain.errors import Unreachable
from runplan.domain.settings.schema import DaemonSettings
from runplan.hosts.daemon.service import DAEMON, STOP_S, Manager, launchd_list, run_all, systemd_unit


def unit(*argv: str, **env: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(systemd_unit(env, umask=0o027, argv=argv or ("/usr/bin/python3", "-m", "runplan", "daemon")))
    return parser["Service"]


def test_a_unit_notifies_is_watched_and_leaves_agents_alone() -> None:
    made = unit(PATH="/bin", HOME="/h", ANTHROPIC_API_KEY="secret")
    assert made["Type"] == "notify"
    assert made["WatchdogSec"] == "180"
    assert float(made["TimeoutStopSec"]) > 2 * DaemonSettings().grace_s
    assert made["Restart"] == "on-failure"
    assert made["RestartPreventExitStatus"] == "2"
    assert made["KillMode"] == "process"
    assert made["UMask"] == "0027"
    assert made["ExecStart"] == "/usr/bin/python3 -m runplan daemon"
    assert made["Environment"] == '"PATH=/bin"'
    assert "secret" not in str(dict(made))


@pytest.mark.parametrize(
    ("argv", "written"),
    [
        (("/bin/x", "/opt/py thon"), '/bin/x "/opt/py thon"'),
        (("/bin/x", "/opt/100%", "/opt/$HOME"), "/bin/x /opt/100%% /opt/$$HOME"),
        (("/bin/x", '/a"b\\c', "/a%b c", ""), '/bin/x "/a\\"b\\\\c" "/a%%b c" ""'),
        (("/opt/$b 100%/x", "daemon"), '"/opt/$b 100%%/x" daemon'),  # in a program nothing is expanded
    ],
)
def test_a_word_of_the_command_means_itself(argv: tuple[str, ...], written: str) -> None:
    assert unit(*argv)["ExecStart"] == written


def test_a_variable_with_blanks_and_percents_means_itself() -> None:
    text = systemd_unit({"PATH": "/my bin:/100%", "XDG_STATE_HOME": '/"q"'}, umask=0)
    assert 'Environment="PATH=/my bin:/100%%"\n' in text
    assert 'Environment="XDG_STATE_HOME=/\\"q\\""\n' in text


def test_a_property_list_keeps_it_alive_and_leaves_agents_alone() -> None:
    made = plistlib.loads(launchd_list({"PATH": "/bin", "GH_TOKEN": "t", "HOME": "/h"}, umask=0o027).encode())
    assert made["ProgramArguments"] == list(DAEMON)
    assert made["KeepAlive"] == {"SuccessfulExit": False}
    assert made["AbandonProcessGroup"] is True
    assert made["ExitTimeOut"] == STOP_S
    assert made["EnvironmentVariables"] == {"PATH": "/bin"}
    assert made["Umask"] == 0o027
    assert made["StandardErrorPath"] == "/h/.local/state/runplan/daemon.out"


@pytest.mark.parametrize(("script", "words"), [("echo 'no bus' >&2; exit 3", "no bus"), ("exit 3", "exit code 3")])
def test_a_service_manager_that_fails_is_quoted(script: str, words: str) -> None:
    manager = Manager(file=Path("x"), text="", asks=("true",), enables=(), disables=(), starts=(), is_active=())
    with pytest.raises(Unreachable, match=f": {words}$"):
        run_all(manager, [("sh", "-c", script)], {"PATH": os.environ["PATH"]})
