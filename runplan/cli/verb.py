"""What `main` needs of a verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from runplan.errors import Exit


def plan_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")


def optional_plan_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a path, a base name, or a unique part of one")


def json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def no_arguments(_parser: argparse.ArgumentParser) -> None:
    pass


class Verb(Struct, frozen=True, kw_only=True):
    """A module with several verbs has a table of these, VERBS; one with a single verb has the same names."""

    run: Callable[[argparse.Namespace], Exit]
    EXAMPLES: str
    arguments: Callable[[argparse.ArgumentParser], None] = plan_argument
