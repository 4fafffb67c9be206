"""Reads shell command lines word by word, without running them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OPERATORS = frozenset("();|&")  #: a word of these characters alone ends a simple command
_KEYWORDS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "!", "{"))
#: Programs that run the program after them, and those that do so after a word of their own.
_BEFORE = frozenset(("env", "time", "timeout", "nice", "exec", "command", "nohup", "stdbuf", "sudo", "xvfb-run"))
_RUNS = frozenset(("poetry", "uv", "pipenv", "hatch", "pdm", "rye", "bundle", "coverage"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_INLINE = re.compile(r"-[A-Za-z]*c[A-Za-z]*")


def simple_commands(text: str) -> Iterator[list[str]]:
    """The commands of a command line, each as its words."""
    for line in text.splitlines():
        lexer = shlex.shlex(
            line.replace("$(MAKE)", "make").replace("${MAKE}", "make"), posix=True, punctuation_chars=True
        )
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quote that is never closed
            words = line.split()
        simple: list[str] = []
        for word in (*words, ";"):
            if word and _OPERATORS.issuperset(word):
                if simple:
                    yield simple
                simple = []
            else:
                simple.append(word)


def program(words: Sequence[str]) -> list[str]:
    """The words from the program on that does the work."""
    left = list(words)
    while left:
        if left[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(left[0]):
            del left[0]
        elif left[0] in _BEFORE:
            del left[0]
            while left and (left[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?", left[0])):
                del left[0]
        elif left[0] in _RUNS and left[1:2] in (["run"], ["exec"]):
            del left[:2]
            while left and left[0].startswith("-") and left[0] != "-m":
                del left[0]
        else:
            break
    return left


def inline_command(arguments: Sequence[str]) -> str:
    """The command line in the arguments of a shell, as of `bash -lc "make test"`; "" when it runs a file."""
    rest = iter(arguments)
    for word in rest:
        if _INLINE.fullmatch(word):
            return next(rest, "")
        if not word.startswith(("-", "+")):
            return ""
        if word.endswith("o") and not word.startswith("--"):  # -o pipefail
            next(rest, "")
    return ""


def option_value(word: str, rest: Iterator[str], short: str, *long: str) -> str | None:
    """The value of the option that `word` begins: the next word, or joined to it; None for any other word."""
    if word == short or word in long:
        return next(rest, "")
    name, equals, value = word.partition("=")
    if equals and name in long:
        return value
    return word.removeprefix(short) if word.startswith(short) else None
