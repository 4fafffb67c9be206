"""A daemon of this version is there when it is needed."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runplan import __version__
from runplan.adapters import processes
from runplan.adapters.configuration.places import OUTPUT, state_directory
from runplan.domain.errors import RefusedEarly, Unreachable
from runplan.hosts.daemon import client as launching
from runplan.hosts.daemon.protocol import Hello, Metrics, MetricsText
from tests.support.daemons import a_manager
from tests.support.dispatching import until
from tests.support.fake_daemon import ROOT

Env = dict[str, str]
FAKE = "tests.support.fake_daemon"


def argv(version: str, *words: str) -> list[str]:
    return [sys.executable, "-m", FAKE, version, *words]


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Env]:
    made = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ANTHROPIC_API_KEY": "secret"}
    yield made
    for one in daemons(made):
        os.kill(one, signal.SIGKILL)
    until(lambda: not daemons(made))


def daemons(env: Env) -> list[int]:
    """Those of this test, also where one still waits for the lock."""
    ours = [one.pid for one in psutil.process_iter(["cmdline"]) if FAKE in (one.info["cmdline"] or ())]
    return [pid for pid in ours if processes.variable(pid, "HOME") == env["HOME"]]


def reach(env: Env, *words: str) -> Hello:
    with launching.reach_daemon(env, argv=argv(__version__, *words), ready_s=60) as client:
        client.call(Metrics(), MetricsText)
        return client.hello


def test_a_daemon_is_started_where_none_runs_and_found_by_the_next(env: Env) -> None:
    first = reach(env)
    assert first.version == __version__
    assert reach(env) == first
    facts = (state_directory(env) / "started").read_text()
    assert facts.startswith("/ True "), "it has no terminal"
    assert ("'PATH'" in facts, "ANTHROPIC_API_KEY" in facts) == (True, False)


def test_a_daemon_of_another_version_is_refused_with_the_command_that_ends_it(env: Env) -> None:
    with pytest.raises(RefusedEarly), launching.reach_daemon(env, argv=argv("0.0.1"), ready_s=60):
        pass
    (old,) = daemons(env)
    with pytest.raises(RefusedEarly, match=r"the daemon is runplan 0\.0\.1, this is .*: runplan daemon restart "):
        reach(env)
    os.kill(old, signal.SIGTERM)
    until(lambda: not daemons(env))
    assert reach(env).version == __version__


def test_a_daemon_of_another_version_that_shuts_down_is_not_to_be_ended_again(env: Env) -> None:
    """A second signal would end its agents."""
    with launching.reach_daemon(env, argv=argv("0.0.1", "draining"), ready_s=60) as client:
        assert client.hello.draining


def test_a_daemon_that_fails_is_reported_with_the_last_output_of_this_start(env: Env) -> None:
    output = state_directory(env) / OUTPUT
    output.parent.mkdir(parents=True)
    output.write_text("an old complaint\n")
    with pytest.raises(Unreachable, match="ended with code 1; last output: ModuleNotFoundError: no module named eng"):
        reach(env, "fails")


@pytest.mark.rest
def test_a_daemon_that_never_answers_is_not_waited_for_for_ever(env: Env) -> None:
    thinks_aloud = ["sh", "-c", f"echo thinking; exec {shlex.join(argv(__version__, 'mute'))}"]  # Python may start late
    with pytest.raises(Unreachable, match=r"did not answer within 3 s; last output: thinking; .*/daemon\.out"):
        launching.reach_daemon(env, argv=thinks_aloud, ready_s=3)
    assert len(daemons(env)) == 1, "it may be slow, and is left to itself"


def in_the_hands_of_a_manager(env: Env, tmp_path: Path) -> Env:
    """As after an install: the manager starts the daemon, and is slow about it."""
    (tmp_path / ".config/systemd/user").mkdir(parents=True)
    (tmp_path / ".config/systemd/user/runplan.service").write_text("")
    words = " ".join(argv(__version__))
    (a_manager(tmp_path / "bin") / "systemctl").write_text(
        f'#!/bin/sh\ntest "$*" = "--user start runplan.service" || exit 1\n'
        f"setsid {words} </dev/null >/dev/null 2>&1 &\n"
        f"until test -e {state_directory(env)}/started; do sleep 0.01; done\n"
    )
    return env | {"PATH": f"{tmp_path}/bin:{env['PATH']}"}


def test_a_manager_starts_the_daemon_in_its_hands_and_one_that_fails_is_done_without(env: Env, tmp_path: Path) -> None:
    managed = in_the_hands_of_a_manager(env, tmp_path)
    assert reach(managed).version == __version__
    assert not (state_directory(env) / OUTPUT).exists()
    (first,) = daemons(env)
    os.kill(first, signal.SIGKILL)
    until(lambda: not daemons(env))
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\nexit 1\n")
    assert reach(managed).version == __version__
    assert (state_directory(env) / OUTPUT).exists()
