"""The service is installed, shown and taken away, with a service manager and without one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runplan.ops.servicefiles import Service, systemd_unit
from tests.support.cli import RUNPLAN, Ran
from tests.support.daemons import a_manager

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Desk:
    """A user at a machine whose service manager is known."""

    home: Path

    def runplan(self, *words: str, **env: str) -> Ran:
        made = {"HOME": str(self.home), "PATH": str(self.home / "bin"), **env}
        done = subprocess.run(
            [sys.executable, RUNPLAN, *words], env=made, cwd=self.home, capture_output=True, check=False
        )
        return Ran(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    @property
    def printed(self) -> list[str]:
        """What the service manager was printed, without what it was asked."""
        file = self.home / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if not any(word in line for word in ("show-environment", "is-active", "print"))]

    @property
    def unit(self) -> Path:
        return self.home / ".config/systemd/user/runplan.service"


def a_desk(home: Path, *managers: str) -> Desk:
    (home / "bin").mkdir()
    for name in managers:
        a_manager(home / "bin", name)
    return Desk(home)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return a_desk(tmp_path, "systemctl")


def test_a_dry_run_shows_the_file_and_changes_nothing(desk: Desk) -> None:
    ran = desk.runplan("service", "install", "--dry-run")

    assert ran.code == 0
    assert ran.out.startswith(f"# {desk.unit}\n")
    assert f"ExecStart={sys.executable} -P -m runplan daemon\n" in ran.out
    assert ran.out.endswith("# systemctl --user daemon-reload\n# systemctl --user enable --now runplan.service\n")
    assert not desk.unit.exists()
    assert desk.printed == []


def test_install_writes_the_file_and_starts_the_daemon(desk: Desk) -> None:
    ran = desk.runplan("service", "install")

    assert (ran.code, ran.out) == (0, f"wrote {desk.unit}\nthe daemon runs, and starts at each login\n")
    assert "Type=notify" in desk.unit.read_text()
    assert desk.printed == ["systemctl --user daemon-reload", "systemctl --user enable --now runplan.service"]


def test_install_prints_the_command_when_the_manager_does_not_answer(desk: Desk) -> None:
    (desk.home / "deaf").touch()

    ran = desk.runplan("service", "install")

    assert ran.code == 0
    assert "Not started: no systemctl user session here. Once you have one, run: systemctl --user" in ran.out
    assert desk.unit.exists()
    assert desk.printed == []


def test_install_quotes_the_error_of_the_manager(desk: Desk) -> None:
    (desk.home / "broken").touch()

    ran = desk.runplan("service", "install")

    assert (ran.code, ran.last) == (5, "runplan: systemctl --user enable --now runplan.service: Unit is masked.")


def test_service_status_shows_installed_and_running(desk: Desk) -> None:
    assert desk.runplan("service", "status").out.startswith(f"not installed; there is no {desk.unit}\n")
    desk.runplan("service", "install")
    assert desk.runplan("service", "status").out == f"installed as {desk.unit}, running\n"
    (desk.home / "active").unlink()
    assert desk.runplan("service", "status").out == f"installed as {desk.unit}, not running\n"
    desk.unit.write_text("by another version")
    assert "write it again: runplan service install" in desk.runplan("service", "status").out
    assert json.loads(desk.runplan("service", "status", "--json").out) == {
        "file": str(desk.unit),
        "installed": True,
        "current": False,
        "active": False,
        "answers": True,
    }


def test_uninstall_stops_the_daemon_and_removes_the_file(desk: Desk) -> None:
    desk.runplan("service", "install")

    ran = desk.runplan("service", "uninstall")

    assert (ran.code, ran.out) == (0, f"removed {desk.unit}\n")
    assert not desk.unit.exists()
    assert desk.printed[2:] == ["systemctl --user disable --now runplan.service", "systemctl --user daemon-reload"]
    assert desk.runplan("service", "uninstall").out == f"there is no {desk.unit}\n"


def test_install_writes_a_property_list_for_launchd(tmp_path: Path) -> None:
    desk = a_desk(tmp_path, "launchctl")
    file = tmp_path / "Library/LaunchAgents/runplan.daemon.plist"

    assert desk.runplan("service", "install").code == 0
    assert "<key>ProgramArguments</key>" in file.read_text()
    assert desk.printed == [f"launchctl bootstrap gui/{os.getuid()} {file}"]
    assert desk.runplan("service", "uninstall").out == f"removed {file}\n"


def test_install_without_a_service_manager_is_refused(tmp_path: Path) -> None:
    ran = a_desk(tmp_path).runplan("service", "install")

    assert (ran.code, ran.last) == (
        2,
        "runplan: neither systemd nor launchd is here; start the daemon another way: runplan daemon",
    )


def test_install_is_refused_inside_an_agent(desk: Desk) -> None:
    assert desk.runplan("service", "install", RUNPLAN_AGENT="1").code == 2
    assert not desk.unit.exists()
    assert desk.runplan("service", "status", RUNPLAN_AGENT="1").code == 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is asked")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    odd = tmp_path / "a $b %n c"
    odd.write_text("#!/bin/sh\n")
    odd.chmod(0o755)
    file = tmp_path / "runplan.service"
    service = Service(argv=(str(odd), "daemon"), env={"PATH": "/bin:/my bin"}, umask=0o022, output="")
    file.write_text(systemd_unit(service))

    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", file],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "runplan.service:" not in done.stderr, done.stderr
    assert "is not executable" not in done.stderr, done.stderr
