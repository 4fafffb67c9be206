"""The `runplan` command: imports the module of the verb, and turns errors into one line and an exit code."""

import functools
import gc
import importlib
import io
import os
import sys
import textwrap
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import suppress
from typing import NoReturn

from runplan import __version__
from runplan.domain.errors import Exit, RefusedEarly, RunplanError, UsageError, refused_by_system
from runplan.domain.text import name_repository, nearest_word
from runplan.interfaces.cli.terminal import Style, say
from runplan.interfaces.cli.verbs import CHANGING, EXAMPLES, GROUPS, VERBS

COMPLETE = "complete-words"  #: the verb that completion scripts call; not for people
EXTRAS = {"web": "web", "mcp": "mcp", "fleet": "fleet", "worker": "fleet"}  #: the extras that verbs need

USAGE = """\
usage: runplan VERB ...

Works through a Markdown plan: a git worktree per run, an implementer, the project's own checks,
an independent verifier, and a landing that happens once or not at all.

{verbs}

  runplan help VERB          options and examples of a verb
  runplan --version
  --repository URL           with any verb: in this repository of the fleet; it needs no clone
  --debug                    with any verb: show the traceback of an error

First steps:
  runplan init                                       write runplan.toml
  runplan check plans/X.md                           see how runplan reads the plan
  runplan start plans/X.md finish auto --foreground  work on it to its end"""


def entry() -> None:
    """Exit with the code of the command, after its output is written; Python would exit with 120 when that fails."""
    # Open what the caller has closed, as `>&-` does: else a file of ours gets the number, and all that is printed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(opened.fileno(), True)
            setattr(sys, name, opened)
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if stream.closed:
            continue
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python flushes it again at exit
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                _say_error(f"cannot write the output: {error.strerror}")
                code = code or int(Exit.UNREACHABLE)
    gc.freeze()  # else the interpreter searches every module for garbage before it exits, a fifth of `status`
    sys.exit(code)


def main(argv: list[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not be UTF-8
    debug = "--debug" in argv
    try:
        words = [word for word in argv if word != "--debug"]
        if words and words[0] in ("-V", "--version"):
            print(f"runplan {__version__}")
            return 0
        if not words:
            importlib.import_module("runplan.interfaces.cli.show.status").print_steps()
            return 0
        if words[0] in ("-h", "--help"):
            print(usage())
            return 0
        verb, *rest = words
        if verb == COMPLETE:
            importlib.import_module("runplan.interfaces.cli.setup.completion").print_candidates(rest)
            return 0
        if "--repository" in rest[:-1] and verb != "fleet":
            place = rest.index("--repository")
            importlib.import_module("runplan.app.views.repositories").enter_repository(rest[place + 1])
            name_repository(rest[place + 1])
            rest[place : place + 2] = []
        return run_verb(require_verb(verb), rest)
    except RunplanError as error:
        _say_error(str(error), debug=debug)
        return int(error.exit)
    except KeyboardInterrupt:
        _say_error("interrupted", debug=debug)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader is gone, as in `runplan logs | head`.
        sys.stderr.close()
        return int(Exit.DONE)
    except Exception as error:  # noqa: BLE001 - the boundary of the command
        unexpected = f"unexpected {type(error).__name__}: {error}; run it again with --debug"
        _say_error(refused_by_system(error) or unexpected, debug=debug)
        return int(Exit.UNREACHABLE)


def _say_error(text: str, *, debug: bool = False) -> None:
    with suppress(OSError):  # standard error may be closed
        if debug:
            sys.excepthook(*sys.exc_info())
        say(text)


def require_verb(verb: str) -> str:
    """The verb; refused with the nearest one when it is unknown."""
    if verb not in VERBS:
        near = nearest_word(verb, VERBS)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(VERBS)}"
        raise UsageError(f"{verb}: no such verb; {hint}")
    return verb


def usage() -> str:
    """The verbs in groups; their headings are bold on a terminal."""
    style = Style.of(sys.stdout)
    groups = (
        [style.paint(f"{heading}:", "bold"), *(f"  {name:<12}  {verb.line}" for name, verb in group.items())]
        for heading, group in GROUPS.items()
    )
    return style.fit_columns(USAGE.format(verbs="\n\n".join("\n".join(lines) for lines in groups)))


def run_verb(verb: str, words: list[str]) -> int:
    """Import the module of the verb, and call its function with the arguments; None is success."""
    parser = parser_of(verb)
    for before, word in zip(["", *words], words, strict=False):
        if not word or (word.startswith("-") and word.partition("=")[1:] == ("=", "")):
            name = word or (before if before.startswith("-") else "a word")
            raise UsageError(f"{verb}: {name} is empty; is a variable not set? See: {parser.prog} --help")
    args, unknown = parser.parse_known_intermixed_args(words)  # options may stand between the words
    if unknown:
        word = unknown[0]
        options = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no other way
        near = nearest_word(word.partition("=")[0], options) if word.startswith("-") else ""
        problem = "no such option" if word.startswith("-") else "one word too many"
        hint = f"did you mean {near}?" if near else f"see: {parser.prog} --help"
        raise UsageError(f"{verb}: {word}: {problem}; {hint}")
    if verb not in ("help", "completion"):
        from runplan.app.operations.model import Caller  # `help` needs no daemon and no repository

        if death := Caller().begin(verb, changes=verb in CHANGING):
            say(death)
    try:
        module = importlib.import_module(f"runplan.interfaces.{VERBS[verb].module}")
    except ModuleNotFoundError as error:
        if verb not in EXTRAS or (error.name or "").startswith("runplan"):
            raise
        install = f"pip install 'runplan[{EXTRAS[verb]}]'"
        raise RefusedEarly(f"{verb} needs the module {error.name}; install it: {install}") from None
    run = getattr(module, f"run_{verb.replace('-', '_')}", None) or functools.partial(module.run_operation, verb)
    code: Exit | None = run(args)
    return int(code or Exit.DONE)


class Formatter(RawDescriptionHelpFormatter):
    """Breaks lines between words alone: cherry-pick is one word."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('runplan ')}: {message}; see: {self.prog} --help")


def parser_of(verb: str) -> ArgumentParser:
    style = Style.of(sys.stdout)
    parser = Parser(
        prog=f"runplan {verb}",
        description=style.fit_columns(f"{VERBS[verb].line}."),
        epilog=style.fit_columns(f"examples:\n{EXAMPLES[verb]}"),
        formatter_class=lambda prog: Formatter(prog, width=style.width or 100),
        allow_abbrev=False,
    )
    for argument in VERBS[verb].arguments:
        place = parser.add_mutually_exclusive_group() if isinstance(argument, list) else parser
        for add in argument if isinstance(argument, list) else [argument]:
            add(place)
    return parser
