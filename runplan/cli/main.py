"""The `runplan` command: finds the verb, imports its module only then, and turns errors into one line and a code."""

from __future__ import annotations

import gc
import io
import os
import sys

from runplan import __version__

# Only for the type checker: typing is dear to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any, NoReturn

#: What a verb does, by group. The modules are imported after parsing, so that each costs only what it needs itself.
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
_FOLDERS = {"Work on plans": "control", "Answer": "control", "Look": "show", "Set up": "setup"}
#: The folder of each verb's module.
FOLDERS = {verb: _FOLDERS[name] for name, group in GROUPS.items() for verb in group}
#: The modules that have several verbs, in their table VERBS; any other verb has a module of its own name.
SHARED = {
    **dict.fromkeys(("start", "retry", "undo"), "start"),
    **dict.fromkeys(("stop", "pause", "resume", "now"), "commands"),
    **dict.fromkeys(("diff", "approve", "reject"), "answer"),
    **dict.fromkeys(("init", "config"), "settings"),
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


_UNWRITTEN = 5  #: core.errors.Exit.UNREACHABLE, whose import most commands that say so little do without


def entry() -> None:
    """What the installed command calls."""
    # Nearly all that a command makes is its modules, which stay. Python would look through them for garbage again and
    # again while they are imported, and once more at the end: a sixth of the time that `status` takes.
    gc.set_threshold(20_000)
    code = main(sys.argv[1:])
    gc.freeze()
    sys.exit(_all_said(code))


def _all_said(code: int) -> int:
    """Let out what was said. Where nobody takes it, Python itself would end with a code that means nothing here."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # it is flushed once more at the end
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                _say(f"what was to be said could not be written: {error.strerror}", debug=False)
                code = code or _UNWRITTEN
    return code


def main(argv: list[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be text
    debug = "--debug" in argv
    words = [word for word in argv if word != "--debug"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n\n".join(_lines(name, group) for name, group in GROUPS.items())))
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"runplan {__version__}")
        return 0
    return _guarded(words[0], words[1:], debug=debug)


def _guarded(verb: str, words: list[str], *, debug: bool) -> int:
    from runplan.errors import Exit, RunplanError

    try:
        return int(_run(verb, words))
    except RunplanError as error:
        _say(str(error), debug=debug)
        if error.exit is Exit.FAILED:
            _say("failed: crashed", debug=False)
        return int(error.exit)
    except KeyboardInterrupt:
        _say("interrupted", debug=debug)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`runplan logs | head`): nothing to say, and nobody to say it to.
        sys.stderr.close()
        return int(Exit.DONE)
    except Exception as error:  # noqa: BLE001 - the edge of the command: a person gets one line
        from runplan.errors import refused_by_system

        if refused := refused_by_system(error):
            _say(refused, debug=debug)
            return int(Exit.UNREACHABLE)
        _say(f"unexpected {type(error).__name__}: {error}; run it again with --debug", debug=debug)
        return int(Exit.UNREACHABLE)


def _say(told: str, *, debug: bool) -> None:
    """One line for a person, and the traceback where it is asked for."""
    import contextlib

    if not told.isprintable():  # a branch or a file that an agent named
        from runplan.text import plain

        told = plain(told)
    with contextlib.suppress(OSError):  # nobody may be listening any more
        if debug:
            import traceback

            traceback.print_exc()
        print(f"runplan: {told}", file=sys.stderr)


def _lines(name: str, group: dict[str, str]) -> str:
    return "\n".join([f"{name}:", *(f"  {verb:<10} {line}" for verb, line in group.items())])


def _run(verb: str, words: list[str]) -> int:
    from runplan.errors import UsageError

    if verb not in VERBS:
        import difflib

        near = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(VERBS)}"
        raise UsageError(f"{verb}: no such verb{hint}")
    return int(module_of(verb).run(parser_of(verb).parse_args(words)))


def parser_of(verb: str) -> ArgumentParser:
    """The parser of a verb's words."""
    import argparse

    from runplan.errors import UsageError

    class Parser(argparse.ArgumentParser):
        """Says in one line what is wrong with the words."""

        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{verb}: {message}; see: runplan {verb} --help")

    module = module_of(verb)
    parser = Parser(
        prog=f"runplan {verb}",
        description=f"{VERBS[verb]}.",
        epilog=f"examples:\n{module.EXAMPLES}",
        # With a width of its own it need not ask the terminal, which costs an import of shutil.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100),
        allow_abbrev=False,
    )
    module.arguments(parser)
    return parser


def module_of(verb: str) -> Any:
    """The module or table entry of a verb: EXAMPLES, arguments, run."""
    import importlib

    module = importlib.import_module(f"runplan.cli.{FOLDERS[verb]}.{SHARED.get(verb, verb)}")
    return module.VERBS[verb] if verb in SHARED else module
