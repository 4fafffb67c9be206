"""The service is installed, shown and taken away, with a service manager and without one."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from runplan.hosts.daemon.service import systemd_unit
from tests.support.cli import Ran, run_command, run_program
from tests.support.daemons import a_manager
from tests.support.repos import isolated_env
from tests.support.tools import write_script

pytestmark = pytest.mark.promise


@dataclass
class Machine:
    """A home directory with a known service manager."""

    home: Path

    def runplan(self, *words: str, **env: str) -> Ran:
        own = {"HOME": str(self.home), "PATH": str(self.home / "bin"), **env}
        return run_command(*words, cwd=self.home, env={**isolated_env(), **own})

    @property
    def printed(self) -> list[str]:
        """The changing commands that the service manager got."""
        file = self.home / "manager.log"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if not any(word in line for word in ("show-environment", "is-active", "print"))]

    @property
    def unit(self) -> Path:
        return self.home / ".config/systemd/user/runplan.service"


def a_machine(home: Path, *managers: str) -> Machine:
    (home / "bin").mkdir()
    for name in managers:
        a_manager(home / "bin", name)
    return Machine(home)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return a_machine(tmp_path, "systemctl")


def test_a_service_is_shown_installed_and_taken_away(machine: Machine) -> None:
    shown = machine.runplan("service", "install", "--dry-run").exits(0)
    assert shown.out.startswith(f"# {machine.unit}\n")
    assert f"ExecStart={sys.executable} -P -m runplan daemon\n" in shown.out
    assert shown.out.endswith("# systemctl --user daemon-reload\n# systemctl --user enable --now runplan.service\n")
    assert (machine.unit.exists(), machine.printed) == (False, [])
    assert machine.runplan("service", "status").out.startswith(f"not installed; there is no {machine.unit}\n")

    ran = machine.runplan("service", "install")

    assert (ran.code, ran.out) == (0, f"wrote {machine.unit}\nthe daemon runs, and starts at each login\n")
    assert "Type=notify" in machine.unit.read_text()
    assert machine.printed == ["systemctl --user daemon-reload", "systemctl --user enable --now runplan.service"]
    assert machine.runplan("service", "status").out == f"installed as {machine.unit}, running\n"
    (machine.home / "active").unlink()
    assert machine.runplan("service", "status").out == f"installed as {machine.unit}, not running\n"
    machine.unit.write_text("by another version")
    assert "write it again: runplan service install" in machine.runplan("service", "status").out
    assert json.loads(machine.runplan("service", "status", "--json", RUNPLAN_AGENT="1").out) == {
        "file": str(machine.unit),
        "installed": True,
        "current": False,
        "active": False,
        "answers": True,
    }

    ran = machine.runplan("service", "uninstall")

    assert (ran.code, ran.out) == (0, f"removed {machine.unit}\n")
    assert not machine.unit.exists()
    assert machine.printed[2:] == ["systemctl --user disable --now runplan.service", "systemctl --user daemon-reload"]
    assert machine.runplan("service", "uninstall").out == f"there is no {machine.unit}\n"


def test_install_prints_the_command_when_the_manager_does_not_answer(machine: Machine) -> None:
    (machine.home / "deaf").touch()

    ran = machine.runplan("service", "install").exits(0)
    assert "Not started: no systemctl user session here. Once you have one, run: systemctl --user" in ran.out
    assert machine.unit.exists()
    assert machine.printed == []


def test_install_writes_a_property_list_for_launchd(tmp_path: Path) -> None:
    machine = a_machine(tmp_path, "launchctl")
    file = tmp_path / "Library/LaunchAgents/runplan.hosts.daemon.plist"

    assert machine.runplan("service", "install").code == 0
    assert "<key>ProgramArguments</key>" in file.read_text()
    assert machine.printed == [f"launchctl bootstrap gui/{os.getuid()} {file}"]
    assert machine.runplan("service", "uninstall").out == f"removed {file}\n"


def test_install_without_a_service_manager_is_refused(tmp_path: Path) -> None:
    a_machine(tmp_path).runplan("service", "install").ends(
        2, "runplan: neither systemd nor launchd is here; start the daemon another way: runplan daemon"
    )


@pytest.mark.rest
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is asked")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    odd = write_script(tmp_path / "a $b %n c", "")
    file = tmp_path / "runplan.service"
    file.write_text(systemd_unit({"PATH": "/bin:/my bin"}, umask=0o022, argv=(str(odd), "daemon")))

    env = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    said = run_program(["systemd-analyze", "--user", "verify", file], tmp_path, env).err

    assert "runplan.service:" not in said, said
    assert "is not executable" not in said, said
