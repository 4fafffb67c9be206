"""The `runplan` command: imports the module of the verb, and turns errors into one line and an exit code."""

from __future__ import annotations

import gc
import io
import os
import sys

from runplan import __version__

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any, NoReturn

#: The verbs by group. Only the module of the given verb is imported.
GROUPS = {
    "Work on plans": {
        "start": "Work on a plan: its next phase, one phase, or all of it",
        "stop": "Cancel schedules and end runs; their work is kept",
        "pause": "Pause a plan; the current step finishes",
        "resume": "Resume a paused plan and its schedule",
        "now": "Run a scheduled plan now",
        "retry": "Resume the last run, or restart its failed phase",
        "undo": "Revert a landed phase with a new commit",
    },
    "Answer": {
        "diff": "Show the change that waits for you, with its evidence",
        "approve": "Approve a pending change and continue",
        "reject": "Reject a pending change",
    },
    "Look": {
        "status": "Show what is done, running and next",
        "next": "List schedules and when they fire next",
        "report": "Show a plan's report",
        "logs": "Show the events of a plan's runs",
        "explain": "Explain the current state and how it got there",
        "check": "Show what was understood of a plan, and what is wrong with it",
        "metrics": "Print Prometheus metrics",
    },
    "Set up": {
        "init": "Write a commented runplan.toml that fits this repository",
        "doctor": "Check the setup and suggest fixes",
        "config": "Print every setting, its value and its origin",
        "gc": "Remove what ended runs left behind; list what is kept",
        "service": "Manage the login service",
        "daemon": "Run the daemon in the foreground",
        "demo": "Work on a three-phase plan in a temporary repository",
        "completion": "Print a completion script for bash, zsh or fish",
    },
}
VERBS = {verb: line for group in GROUPS.values() for verb, line in group.items()}
#: Verbs of a later version, and what to use until then.
PLANNED = {
    "plan": "; write the plan yourself, then run: runplan check PLAN",
    "inbox": "; see: runplan status",
    "answer": "; use: runplan approve PLAN, or runplan reject PLAN -m REASON",
}
_FOLDERS = {"Work on plans": "control", "Answer": "control", "Look": "show", "Set up": "setup"}
#: The folder of each verb's module.
FOLDERS = {verb: _FOLDERS[name] for name, group in GROUPS.items() for verb in group}
#: The modules that have several verbs, in their table VERBS; any other verb has a module of its own name.
SHARED = {
    **dict.fromkeys(("start", "retry", "undo"), "start"),
    **dict.fromkeys(("stop", "pause", "resume", "now"), "commands"),
    **dict.fromkeys(("status", "next"), "status"),
    **dict.fromkeys(("logs", "explain", "metrics"), "journal"),
    **dict.fromkeys(("diff", "approve", "reject"), "answer"),
    **dict.fromkeys(("init", "config"), "settings"),
    **dict.fromkeys(("doctor", "gc"), "doctor"),
    **dict.fromkeys(("service", "daemon"), "service"),
}

USAGE = """\
usage: runplan VERB ...

Works through a Markdown plan: a git worktree per run, an implementer, the project's own checks, an independent
verifier, and a landing that happens once or not at all.

{verbs}

  runplan VERB --help        options and examples of a verb
  runplan --version
  --debug                    with any verb: show the traceback of an error

First steps:
  runplan init                                       write runplan.toml
  runplan check plans/X.md                           see what is understood of the plan
  runplan start plans/X.md finish auto --foreground  work on it to its end"""


_UNWRITTEN = 5  #: errors.Exit.UNREACHABLE, without its import


def entry() -> None:
    """The installed command."""
    # Modules are no garbage. To search them again and again takes a sixth of the time of `status`.
    gc.set_threshold(20_000)
    code = main(sys.argv[1:])
    gc.freeze()
    sys.exit(_flushed(code))


def _flushed(code: int) -> int:
    """The exit code after the output is written; Python would exit with 120 when that fails."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python flushes it again at exit
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                _say(f"cannot write the output: {error.strerror}", debug=False)
                code = code or _UNWRITTEN
    return code


def main(argv: list[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not be UTF-8
    debug = "--debug" in argv
    words = [word for word in argv if word != "--debug"]
    return _guarded(words, debug=debug)


def _guarded(words: list[str], *, debug: bool) -> int:
    from runplan.errors import Exit, RunplanError

    try:
        return _run(words)
    except RunplanError as error:
        _say(str(error), debug=debug)
        if error.exit is Exit.FAILED:
            _say("failed: crashed", debug=False)
        return int(error.exit)
    except KeyboardInterrupt:
        _say("interrupted", debug=debug)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader is gone, as in `runplan logs | head`.
        sys.stderr.close()
        return int(Exit.DONE)
    except Exception as error:  # noqa: BLE001 - the boundary of the command
        from runplan.errors import refused_by_system

        if refused := refused_by_system(error):
            _say(refused, debug=debug)
            return int(Exit.UNREACHABLE)
        _say(f"unexpected {type(error).__name__}: {error}; run it again with --debug", debug=debug)
        return int(Exit.UNREACHABLE)


def _say(text: str, *, debug: bool) -> None:
    """Print one line, and the traceback with --debug."""
    import contextlib

    if not text.isprintable():  # the name of a branch or file
        from runplan.text import plain

        text = plain(text)
    with contextlib.suppress(OSError):  # standard error may be closed
        if debug:
            import traceback

            traceback.print_exc()
        print(f"runplan: {text}", file=sys.stderr)


def _lines(name: str, group: dict[str, str]) -> str:
    head = f"{name}:"
    if sys.stdout.isatty():
        from runplan.cli.terminal import BOLD, Style

        head = Style.of(sys.stdout).paint(head, BOLD)
    return "\n".join([head, *(f"  {verb:<10} {line}" for verb, line in group.items())])


def _run(words: list[str]) -> int:
    from runplan.errors import UsageError

    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n\n".join(_lines(name, group) for name, group in GROUPS.items())))
        return 0 if words else 2
    verb, *rest = words
    if verb in ("-V", "--version"):
        print(f"runplan {__version__}")
        return 0
    if verb in PLANNED:
        raise UsageError(f"{verb} is not in this version of runplan{PLANNED[verb]}")
    if verb not in VERBS:
        import difflib

        near = difflib.get_close_matches(verb, VERBS, n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(VERBS)}"
        raise UsageError(f"{verb}: no such verb{hint}")
    return int(module_of(verb).run(parser_of(verb).parse_args(rest)))


def parser_of(verb: str) -> ArgumentParser:
    """The argument parser of a verb."""
    import argparse

    from runplan.errors import UsageError

    class Parser(argparse.ArgumentParser):
        """Raises errors as UsageError."""

        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{verb}: {message}; see: runplan {verb} --help")

    module = module_of(verb)
    parser = Parser(
        prog=f"runplan {verb}",
        description=f"{VERBS[verb]}.",
        epilog=f"examples:\n{module.EXAMPLES}",
        # A fixed width saves the import of shutil.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100),
        allow_abbrev=False,
    )
    module.arguments(parser)
    return parser


def module_of(verb: str) -> Any:
    """The module or table entry of a verb: EXAMPLES, arguments, run."""
    import importlib

    _import_msgspec()
    module = importlib.import_module(f"runplan.cli.{FOLDERS[verb]}.{SHARED.get(verb, verb)}")
    return module.VERBS[verb] if verb in SHARED else module


def _import_msgspec() -> None:
    """Import it without typing_extensions: 13 ms, for names that Python 3.11 has in `typing`."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # its import fails, which msgspec expects
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
