"""runplan config: print every setting with its value and its origin."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from runplan.errors import Exit
from runplan.settings.text import toml

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan config                              every key, value and origin
  RUNPLAN_RUN_LANDING=pr runplan config       what a variable changes
  runplan config --json                       the same for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, settings_note

    with open_context() as at:
        settled = at.settled()
        if note := settings_note(at):
            print(f"runplan: {note}", file=sys.stderr)
    if args.json:
        rows = [{"key": key, "value": value, "origin": settled.origins[key]} for key, value in settled.values.items()]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return Exit.DONE
    shown = {key: toml(value) for key, value in settled.values.items()}
    keys, values = max(map(len, shown)), max(map(len, shown.values()))
    for key, value in shown.items():
        print(f"{key:<{keys}}  {value:<{values}}  {settled.origins[key]}")
    return Exit.DONE
