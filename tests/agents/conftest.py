"""A table at the end lists the result of each program."""

import subprocess

import pytest

from tests.agents.clis import CLIS, HERE


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = [
        (dict(report.user_properties), report)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call" and report.user_properties
    ]
    if not rows:
        return
    terminalreporter.section("agents")
    for name in sorted({str(facts.get("cli")) for facts, _ in rows}):
        terminalreporter.write_line(f"{name} {version(name)}")
    for facts, report in sorted(rows, key=lambda row: (str(row[0].get("cli")), str(row[0].get("case")))):
        mark = "ok  " if report.passed else "FAIL"
        terminalreporter.write_line(
            f"{mark} {facts['cli']!s:9} {facts['case']!s:10} {facts['seconds']!s:>6} s  {facts['outcome']}"
        )


def version(name: str) -> str:
    """The version that the installer noted, else the one that the program prints."""
    noted = HERE / name / ".version"
    if noted.exists():
        return noted.read_text(encoding="utf-8").strip()
    asked = subprocess.run([name, "--version"], capture_output=True, check=False) if name in CLIS else None
    return asked.stdout.decode().strip() if asked else ""
