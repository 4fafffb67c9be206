"""The `runplan` command: imports the module of the verb, and turns errors into one line and an exit code."""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import suppress

from runplan import __version__
from runplan.errors import Exit, RunplanError, UsageError, refused_by_system

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any, NoReturn

#: The verbs by group, each with its module and one line. Only the module of the given verb is imported.
GROUPS = {
    "Work on plans": {
        "start": ("control.start", "Work on a plan: its next phase, one phase, or all of it"),
        "watch-issues": ("control.start", "Work on the open issues with a label, one after the other"),
        "stop": ("control.commands", "Cancel schedules and end runs; their work is kept"),
        "pause": ("control.commands", "Pause a plan; the current step finishes"),
        "resume": ("control.commands", "Resume a paused plan and its schedule"),
        "now": ("control.commands", "Run a scheduled plan now"),
        "retry": ("control.start", "Resume the last run, or restart its failed phase"),
        "undo": ("control.start", "Revert a landed phase with a new commit"),
    },
    "Answer": {
        "diff": ("control.commands", "Show the change that waits for you, with its evidence"),
        "approve": ("control.commands", "Approve a pending change and continue"),
        "reject": ("control.commands", "Reject a pending change"),
    },
    "Look": {
        "status": ("show.status", "Show what is done, running and next"),
        "next": ("show.status", "List schedules and when they fire next"),
        "report": ("show.report", "Show a plan's report"),
        "logs": ("show.journal", "Show the events of a plan's runs"),
        "explain": ("show.journal", "Explain the current state and how it got there"),
        "check": ("show.check", "Show how runplan reads a plan, and what is wrong with it"),
        "metrics": ("show.journal", "Print Prometheus metrics"),
    },
    "Set up": {
        "init": ("setup.settings", "Write a commented runplan.toml that fits this repository"),
        "doctor": ("setup.doctor", "Check the setup and suggest fixes"),
        "config": ("setup.settings", "Print every setting, its value and its origin"),
        "gc": ("setup.doctor", "Remove what ended runs left behind; list what is kept"),
        "service": ("setup.machine", "Manage the login service"),
        "daemon": ("setup.machine", "Run the daemon in the foreground"),
        "demo": ("setup.demo", "Work on a three-phase plan in a temporary repository"),
        "completion": ("setup.machine", "Print a completion script for bash, zsh or fish"),
    },
}
VERBS = {verb: about for group in GROUPS.values() for verb, about in group.items()}
PLANNED = ("plan", "inbox", "answer")  #: verbs of a later version

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
  runplan check plans/X.md                           see how runplan reads the plan
  runplan start plans/X.md finish auto --foreground  work on it to its end"""


def entry() -> None:
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
                _say(f"cannot write the output: {error.strerror}")
                code = code or int(Exit.UNREACHABLE)
    return code


def main(argv: list[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not be UTF-8
    debug = "--debug" in argv
    try:
        return _run([word for word in argv if word != "--debug"])
    except RunplanError as error:
        _say(str(error), debug=debug)
        if error.exit is Exit.FAILED:
            _say("failed: crashed")
        return int(error.exit)
    except KeyboardInterrupt:
        _say("interrupted", debug=debug)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader is gone, as in `runplan logs | head`.
        sys.stderr.close()
        return int(Exit.DONE)
    except Exception as error:  # noqa: BLE001 - the boundary of the command
        unexpected = f"unexpected {type(error).__name__}: {error}; run it again with --debug"
        _say(refused_by_system(error) or unexpected, debug=debug)
        return int(Exit.UNREACHABLE)


def _say(text: str, *, debug: bool = False) -> None:
    """Print one line, and the traceback with --debug."""
    if not text.isprintable():  # the name of a branch or file
        from runplan.text import plain

        text = plain(text)
    with suppress(OSError):  # standard error may be closed
        if debug:
            import traceback

            traceback.print_exc()
        print(f"runplan: {text}", file=sys.stderr)


def _verbs() -> str:
    """The verbs in groups; their headings are bold on a terminal."""
    from runplan.cli.terminal import Style

    style = Style.of(sys.stdout)
    groups = (
        [style.paint(f"{name}:", "bold"), *(f"  {verb:<12} {line}" for verb, (_, line) in group.items())]
        for name, group in GROUPS.items()
    )
    return "\n\n".join("\n".join(lines) for lines in groups)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs=_verbs()))
        return 0 if words else 2
    verb, *rest = words
    if verb in ("-V", "--version"):
        print(f"runplan {__version__}")
        return 0
    if verb in PLANNED:
        raise UsageError(f"{verb} is not in this version of runplan; see: runplan --help")
    if verb not in VERBS:
        import difflib

        near = [one for one in VERBS if one.startswith(verb)] or difflib.get_close_matches(verb, VERBS, cutoff=0.7)
        hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(VERBS)}"
        raise UsageError(f"{verb}: no such verb{hint}")
    run = getattr(module_of(verb), f"run_{verb.replace('-', '_')}")
    return int(run(parser_of(verb).parse_args(rest)))


def parser_of(verb: str) -> ArgumentParser:
    import argparse

    class Parser(argparse.ArgumentParser):
        """Raises errors as UsageError."""

        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{verb}: {message}; see: runplan {verb} --help")

    module = module_of(verb)
    parser = Parser(
        prog=f"runplan {verb}",
        description=f"{VERBS[verb][1]}.",
        epilog=f"examples:\n{module.EXAMPLES[verb]}",
        # A fixed width saves the import of shutil.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100),
        allow_abbrev=False,
    )
    if add_arguments := getattr(module, f"{verb.replace('-', '_')}_arguments", None):
        add_arguments(parser)
    return parser


def module_of(verb: str) -> Any:
    """The module of a verb, with `run_<verb>`, `EXAMPLES[verb]` and, if it has arguments, `<verb>_arguments`."""
    import importlib

    _import_msgspec()
    return importlib.import_module(f"runplan.cli.{VERBS[verb][0]}")


def _import_msgspec() -> None:
    """Import it without typing_extensions: 13 ms, for names that Python 3.11 has in `typing`."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # its import fails, which msgspec expects
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
