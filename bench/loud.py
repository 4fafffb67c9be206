"""A loud agent: what the daemon and the shim hold in memory, and what reading costs, while it prints a gigabyte.

`python -m bench.loud MEGABYTES`; once as plain text, once as claude's events, of which every line is parsed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.daemon import LONGEST_S, LOOK_S, daemon, runplan
from bench.projects import make

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 1024 * 1024
CLOSING = json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "Done."})
EVENT = {
    "type": "assistant",
    "message": {
        "id": "m",
        "model": "claude-sonnet-4-5",
        "usage": {"input_tokens": 10, "output_tokens": 1},
        "content": [
            {"type": "text", "text": "Working on it. " * 20},
            {"type": "tool_use", "name": "Bash", "input": {"command": "make test " * 10}},
        ],
    },
}
#: Having printed, it waits to be looked at.
AGENT = """\
#!/bin/sh
test "$1" != --version || exit 0
if test "$RUNPLAN_ROLE" = verify; then
    printf '{{"status":"done","summary":"seen","items":[{{"item":"P","result":"pass","evidence":"work.txt"}}]}}' \\
        >"$RUNPLAN_RETURN"
else
    n=0; while test $n -lt {megabytes}; do cat {place}/piece; n=$((n + 1)); done
    touch {place}/printed; while test ! -e {place}/go; do sleep 0.05; done
    echo 1 >>work.txt && git add work.txt && git commit -q -m Work
fi
echo '{closing}'
"""


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    for kind, line in (("command", "x" * 99), ("claude", json.dumps(EVENT))):
        with tempfile.TemporaryDirectory() as place:
            loud(Path(place), kind, line, megabytes)


def loud(place: Path, kind: str, line: str, megabytes: int) -> None:
    """One phase whose implementer prints so much."""
    root = make(place, files=10, phases=1)
    lines = MEGABYTE // (len(line) + 1)
    (place / "piece").write_text(f"{line}\n" * lines)
    (place / "agent.sh").write_text(AGENT.format(megabytes=megabytes, place=place, closing=CLOSING))
    settings = (root / "runplan.toml").read_text()
    (root / "runplan.toml").write_text(settings.replace('kind = "command"', f'kind = "{kind}"'))
    with daemon(place / "home") as process:
        before = peak(process.pid)
        runplan(root, place / "home", "start", "X", "finish", "auto")
        began = time.monotonic()
        until(lambda: (place / "printed").exists())
        seconds = time.monotonic() - began
        (record,) = root.glob(".git/runplan/dispatch/*/shim.json")
        shim = int(json.loads(record.read_text())["identity"].partition(":")[0])
        settled(shim)
        times = psutil.Process(shim).cpu_times()
        print(
            f"loud agent, {kind}: {megabytes} MB in {seconds:.1f} s; daemon at most {peak(process.pid) / 1024:.1f} MB"
            f" ({before / 1024:.1f} before), shim {peak(shim) / 1024:.1f} MB, {times.user + times.system:.1f} s of CPU",
            end="",
            flush=True,
        )
        (place / "go").touch()
        until(lambda: (record.parent / "exit.json").exists())
        exit_record = json.loads((record.parent / "exit.json").read_text())
        kept = (record.parent / "out.log").stat().st_size
        unread = exit_record["tally"].get("unread", 0)
        print(
            f"; {exit_record['output_bytes'] / MEGABYTE:.0f} MB read, {lines * megabytes} lines, {unread} unknown;"
            f" log {kept / MEGABYTE:.1f} MB",
            flush=True,
        )


def peak(pid: int) -> int:
    """The most memory it ever held, in KiB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0])


def settled(pid: int) -> None:
    """Wait until it has read what is left in the pipe: until it no longer works."""
    process, before = psutil.Process(pid), -1.0
    while (now := process.cpu_times().user) != before:
        before = now
        time.sleep(10 * LOOK_S)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
