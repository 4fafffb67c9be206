"""Plays the steps of a scripted agent; a program of its own that imports next to nothing.

It is run without site-packages, so it uses nothing of runplan, and what few steps need is imported there.
A step that cannot be played ends it with code 70 and the reason on standard error.
"""

# pathlib takes as long to import as the interpreter takes to start.
# ruff: noqa: PTH100, PTH101, PTH103, PTH108, PTH110, PTH117, PTH120

from __future__ import annotations

import marshal
import os
import sys
import time

# Only for the type checker: typing is half as dear as the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CANNOT_PLAY = 70

#: How long `wait_for` waits, in seconds, unless the step has a `bound`; and how often it looks.
BOUND_S = 60.0
LOOK_S = 0.01

#: Further keys that a step may have beside the one that names it.
MODIFIERS = frozenset(
    ("text", "megabytes", "date", "all", "bound", "in_main", "return_by", "summary", "evidence", "once")
)

MEGABYTE = 1024 * 1024

_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {ord('"'): '\\"', ord("\\"): "\\\\"}

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
            sys.exit(CANNOT_PLAY)


def _is_due(step: dict[str, Any]) -> bool:
    """A step with `once` is played by the first that comes to it; the file is how others know."""
    if "once" not in step:
        return True
    try:
        os.close(os.open(step["once"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    return True


# --- files ----------------------------------------------------------------------------------------------


def _write(path: str, step: dict[str, Any]) -> None:
    _touch("write", path)
    _save(path, step, os.O_TRUNC)


def _append(path: str, step: dict[str, Any]) -> None:
    _touch("append", path)
    _save(path, step, os.O_APPEND)


def _save(path: str, step: dict[str, Any], how: int) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o644)
    _put(file, step.get("text", ""))
    for _ in range(step.get("megabytes", 0)):
        _put(file, "\0" * MEGABYTE)
    os.close(file)


def _delete(path: str, _: dict[str, Any]) -> None:
    _touch("delete", path)
    os.unlink(path)


def _mkdir(path: str, _: dict[str, Any]) -> None:
    _touch("mkdir", path)
    os.makedirs(path, exist_ok=True)


def _touch(tool: str, path: str) -> None:
    if not os.path.isabs(path):
        _touched.append(path)
    _tell(tool, os.path.abspath(path))


# --- git ------------------------------------------------------------------------------------------------


def _commit(message: str, step: dict[str, Any]) -> None:
    """Commit what this script touched, or everything; when there is nothing to commit, nothing happens."""
    if not _touched and not step.get("all"):
        return
    paths = [] if step.get("all") else ["--", *_touched]
    _run_git(["add", "-A", *paths], step)
    dates = {"GIT_AUTHOR_DATE": step["date"], "GIT_COMMITTER_DATE": step["date"]} if "date" in step else {}
    _run_git(["commit", "-q", "-m", message], step, answers=(0, 1), env=dates, quiet=True)
    _touched.clear()


def _git(arguments: list[str], step: dict[str, Any]) -> None:
    _tell("git", "")
    _run_git(arguments, step)


def _move_ref(move: dict[str, str], step: dict[str, Any]) -> None:
    _tell("move_ref", move["ref"])
    _run_git(["update-ref", move["ref"], move["to"]] if move["to"] else ["update-ref", "-d", move["ref"]], step)


def _config(entry: dict[str, str], step: dict[str, Any]) -> None:
    _tell("config", entry["key"])
    _run_git(["config", entry["key"], entry["value"]], step)


def _hook(hook: dict[str, str], _: dict[str, Any]) -> None:
    import subprocess

    hooks = subprocess.check_output(["git", "rev-parse", "--git-path", "hooks"], text=True).strip()
    path = os.path.join(hooks, hook["name"])
    _tell("hook", os.path.abspath(path))
    os.makedirs(hooks, exist_ok=True)
    _save(path, hook, os.O_TRUNC)
    os.chmod(path, 0o755)  # noqa: S103 - git runs executable hooks only


def _run_git(
    arguments: list[str],
    step: dict[str, Any],
    *,
    answers: tuple[int, ...] = (0,),
    env: dict[str, str] | None = None,
    quiet: bool = False,
) -> None:
    where = ["-C", step["in_main"]] if step.get("in_main") else []
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)] if quiet else []
    environment = {**os.environ, **(env or {})}
    git = os.posix_spawnp("git", ["git", *where, *arguments], environment, file_actions=nowhere)
    code = os.waitstatus_to_exitcode(os.waitpid(git, 0)[1])
    if code not in answers:
        raise ValueError(f"git {arguments[0]} ended with {code}")


# --- words ----------------------------------------------------------------------------------------------


def _print(text: str, _: dict[str, Any]) -> None:
    _put(1, text)


def _print_megabytes(count: int, _: dict[str, Any]) -> None:
    line = "x" * 1023 + "\n"
    for _i in range(count):
        _put(1, line * 1024)


def _stderr(text: str, _: dict[str, Any]) -> None:
    _put(2, text)


def _say(text: str, _: dict[str, Any]) -> None:
    _put(1, text + "\n")


def _return(value: dict[str, Any], step: dict[str, Any]) -> None:
    _return_text(_json(value), step)


def _return_text(text: str, step: dict[str, Any]) -> None:
    if step.get("return_by") == "message":
        _put(1, f"```json\n{text}\n```\n")
    else:
        _save(os.environ["RUNPLAN_RETURN"], {"text": text}, os.O_TRUNC)


def _pass_all(_: bool, step: dict[str, Any]) -> None:
    _verdict([], step)


def _fail(failed: list[str], step: dict[str, Any]) -> None:
    _verdict(failed, step)


def _verdict(failed: list[str], step: dict[str, Any]) -> None:
    """Answer for every item the prompt lists: the failed ones fail, the others pass."""
    evidence = step.get("evidence", "played by the script")
    items = [{"item": item, "result": "fail" if item in failed else "pass", "evidence": evidence} for item in _items()]
    _return({"status": "done", "summary": step.get("summary", "Looked at every item."), "items": items}, step)


def _items() -> list[str]:
    """The ids of the lines `- W1: text` under the heading `## Items` of the prompt."""
    with open(os.environ["RUNPLAN_PROMPT"], "rb") as file:
        text = file.read().decode(errors="replace")
    section = ("\n" + text).partition("\n## Items")[2].partition("\n## ")[0]
    entries = [line[2:].partition(":") for line in section.splitlines() if line.startswith("- ")]
    return [item.strip() for item, colon, _ in entries if colon]


def _json(value: Any) -> str:
    """Write JSON without the library, which would double the player's start."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(str(key))}: {_json(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, str):
        return '"' + value.translate(_ESCAPES) + '"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _tell_all(told: dict[str, Any], _: dict[str, Any]) -> None:
    """What a program tells of itself in its stream: usage, context, troubles."""
    _put(1, f'{{"runplan":"tell","told":{_json(told)}}}\n')


def _tell(tool: str, path: str) -> None:
    _put(1, f'{{"runplan":"tool","tool":{_json(tool)},"path":{_json(path)}}}\n')


def _put(file: int, text: str) -> None:
    rest = text.encode(errors="surrogateescape")
    while rest:
        rest = rest[os.write(file, rest) :]


# --- time and death -------------------------------------------------------------------------------------


def _sleep(seconds: float, _: dict[str, Any]) -> None:
    time.sleep(seconds)


def _busy(seconds: float, _: dict[str, Any]) -> None:
    """Use the processor without a word."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def _wait_for(path: str, step: dict[str, Any]) -> None:
    end = time.monotonic() + step.get("bound", BOUND_S)
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise ValueError("it did not come")
        time.sleep(LOOK_S)


def _exit(code: int, _: dict[str, Any]) -> None:
    sys.exit(code)


def _signal(name: str, _: dict[str, Any]) -> None:
    import signal

    os.kill(os.getpid(), signal.Signals[f"SIG{name}"])


def _stubborn(_: bool, __: dict[str, Any]) -> None:
    """Ignore the request to end from now on; children do so as well."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _orphan(seconds: float, _: dict[str, Any]) -> None:
    """Leave a child behind that keeps our pipes open."""
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)


def _orphan_setsid(seconds: float, _: dict[str, Any]) -> None:
    """Leave a child behind in a session of its own."""
    if os.fork() == 0:
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
    "write": _write,
    "append": _append,
    "delete": _delete,
    "mkdir": _mkdir,
    "commit": _commit,
    "git": _git,
    "move_ref": _move_ref,
    "config": _config,
    "hook": _hook,
    "print": _print,
    "print_megabytes": _print_megabytes,
    "stderr": _stderr,
    "say": _say,
    "tell": _tell_all,
    "return": _return,
    "return_text": _return_text,
    "pass_all": _pass_all,
    "fail": _fail,
    "sleep": _sleep,
    "busy": _busy,
    "wait_for": _wait_for,
    "exit": _exit,
    "signal": _signal,
    "stubborn": _stubborn,
    "orphan": _orphan,
    "orphan_setsid": _orphan_setsid,
    "orphan_daemon": _orphan_daemon,
}
