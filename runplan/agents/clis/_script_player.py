"""Plays the steps of a scripted agent; a program of its own that imports next to nothing.

It runs without site-packages, so it uses nothing of runplan, and rare imports are inside their steps: json or pathlib
take as long to import as the interpreter takes to start. A step that fails ends it with code 70.
"""

# ruff: noqa: PTH100, PTH101, PTH103, PTH108, PTH110, PTH117, PTH120

from __future__ import annotations

import marshal
import os
import sys
import time

# Only for the type checker: typing takes half as long to import as the interpreter takes to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FAILED = 70

#: How long `wait_for` waits, in seconds, unless the step has a `bound`; and how often it looks.
BOUND_S = 60.0
LOOK_S = 0.01

#: Keys that a step may have besides the one that names it.
MODIFIERS = frozenset(("text", "megabytes", "date", "all", "bound", "in_main", "summary", "evidence", "once"))

MEGABYTE = 1024 * 1024

_touched: list[str] = []


def main(path: str) -> None:
    """Play the steps in the file, one after the other."""
    with open(path, "rb") as file:
        steps = marshal.load(file)  # noqa: S302 - written by our own runner a moment ago
    for step in steps:
        name = next(key for key in step if key in STEPS)
        try:
            if _is_due(step):
                STEPS[name](step[name], step)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _put(2, f"script: {name} = {step[name]!r}: {error}\n")
            sys.exit(FAILED)


def _is_due(step: dict[str, Any]) -> bool:
    """A step with `once` is played by the first agent that reaches it and makes the file."""
    if "once" not in step:
        return True
    try:
        os.close(os.open(step["once"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    return True


# --- files ----------------------------------------------------------------------------------------------


def _file(tool: str, act: Callable[[str, dict[str, Any]], None]) -> Callable[[str, dict[str, Any]], None]:
    """A step that reports the file it uses, and remembers it for the next commit."""

    def play(path: str, step: dict[str, Any]) -> None:
        if not os.path.isabs(path):
            _touched.append(path)
        _report(tool, os.path.abspath(path))
        act(path, step)

    return play


def _save(path: str, step: dict[str, Any], mode: int = os.O_TRUNC) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o644)
    _put(file, step.get("text", ""))
    for _ in range(step.get("megabytes", 0)):
        _put(file, "\0" * MEGABYTE)
    os.close(file)


# --- git ------------------------------------------------------------------------------------------------


def _commit(message: str, step: dict[str, Any]) -> None:
    """Commit the files that this script touched, or everything; without changes nothing happens."""
    if not _touched and not step.get("all"):
        return
    paths = [] if step.get("all") else ["--", *_touched]
    _run_git(["add", "-A", *paths], step)
    dates = {"GIT_AUTHOR_DATE": step["date"], "GIT_COMMITTER_DATE": step["date"]} if "date" in step else {}
    _run_git(["commit", "-q", "-m", message], step, allowed=(0, 1), env=dates, quiet=True)
    _touched.clear()


def _git(arguments: list[str], step: dict[str, Any]) -> None:
    _report("git", "")
    _run_git(arguments, step)


def _hook(hook: dict[str, str], _: dict[str, Any]) -> None:
    import subprocess

    hooks = subprocess.check_output(["git", "rev-parse", "--git-path", "hooks"], text=True).strip()
    path = os.path.join(hooks, hook["name"])
    _report("hook", os.path.abspath(path))
    _save(path, hook)
    os.chmod(path, 0o755)  # noqa: S103 - git runs executable hooks only


def _run_git(
    arguments: list[str],
    step: dict[str, Any],
    *,
    allowed: tuple[int, ...] = (0,),
    env: dict[str, str] | None = None,
    quiet: bool = False,
) -> None:
    where = ["-C", step["in_main"]] if step.get("in_main") else []
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)] if quiet else []
    git = os.posix_spawnp("git", ["git", *where, *arguments], {**os.environ, **(env or {})}, file_actions=silent)
    code = os.waitstatus_to_exitcode(os.waitpid(git, 0)[1])
    if code not in allowed:
        raise ValueError(f"git {arguments[0]} ended with {code}")


# --- output ---------------------------------------------------------------------------------------------


def _return(text: str, _: dict[str, Any]) -> None:
    _save(os.environ["RUNPLAN_RETURN"], {"text": text})


def _verdict(failed: list[str], step: dict[str, Any]) -> None:
    """Answer for every item of the prompt; `evidence` and `summary` are JSON already."""
    results = ((item, "fail" if item in failed else "pass") for item in _items())
    items = (f'{{"item": "{item}", "result": "{result}", "evidence": {step["evidence"]}}}' for item, result in results)
    _return(f'{{"status": "done", "summary": {step["summary"]}, "items": [{", ".join(items)}]}}', step)


def _items() -> list[str]:
    """The ids of the lines `- W1: text` under the heading `## Items` of the prompt."""
    with open(os.environ["RUNPLAN_PROMPT"], "rb") as file:
        text = file.read().decode(errors="replace")
    section = ("\n" + text).partition("\n## Items")[2].partition("\n## ")[0]
    entries = [line[2:].partition(":") for line in section.splitlines() if line.startswith("- ")]
    return [item.strip() for item, colon, _ in entries if colon]


def _report(tool: str, path: str) -> None:
    _put(1, f"runplan:tool {tool} {path}\n")


def _put(file: int, text: str) -> None:
    rest = text.encode(errors="surrogateescape")
    while rest:
        rest = rest[os.write(file, rest) :]


# --- time and processes ---------------------------------------------------------------------------------


def _busy(seconds: float, _: dict[str, Any]) -> None:
    """Use the processor without output."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def _wait_for(path: str, step: dict[str, Any]) -> None:
    end = time.monotonic() + step.get("bound", BOUND_S)
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise ValueError("it did not come")
        time.sleep(LOOK_S)


def _signal(name: str, _: dict[str, Any]) -> None:
    import signal

    os.kill(os.getpid(), signal.Signals[f"SIG{name}"])


def _orphan(seconds: float, _: dict[str, Any], *, own_session: bool = False) -> None:
    """Leave a child behind that keeps the pipes open."""
    if os.fork() == 0:
        if own_session:
            os.setsid()
        time.sleep(seconds)
        os._exit(0)


def _orphan_daemon(seconds: float, _: dict[str, Any]) -> None:
    """Leave a daemon behind: forked twice, in its own session, all files closed."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(seconds)
    os._exit(0)


STEPS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "write": _file("write", _save),
    "append": _file("append", lambda path, step: _save(path, step, os.O_APPEND)),
    "delete": _file("delete", lambda path, _: os.unlink(path)),
    "commit": _commit,
    "git": _git,
    "hook": _hook,
    "print": lambda text, _: _put(1, text),
    "return_text": _return,
    "fail": _verdict,
    "sleep": lambda seconds, _: time.sleep(seconds),
    "busy": _busy,
    "wait_for": _wait_for,
    "exit": lambda code, _: sys.exit(code),
    "signal": _signal,
    "orphan": _orphan,
    "orphan_setsid": lambda seconds, step: _orphan(seconds, step, own_session=True),
    "orphan_daemon": _orphan_daemon,
}
