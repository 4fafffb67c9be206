"""runplan help and completion: the manual, the scripts of the shells, and the words that they ask runplan for."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from runplan.app.operations.model import Caller
from runplan.app.views.plans import list_paths, read_plans
from runplan.app.views.status import PlanView
from runplan.domain.names import word_of
from runplan.domain.settings.schema import LANDINGS
from runplan.interfaces.cli.main import COMPLETE, parser_of, require_verb, usage
from runplan.interfaces.cli.verbs import VERBS

#: The words after PLAN, which the parsers do not list.
WORDS = {"start": ("finish", "auto", *LANDINGS, "every", "now"), "watch-issues": ("every", "now")}

BASH = f"""\
_runplan() {{
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${{line%%$'\\t'*}}")
    done < <("${{COMP_WORDS[0]}}" {COMPLETE} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null)
}}
complete -o default -o filenames -F _runplan runplan"""

ZSH = f"""\
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
_runplan() {{
    local -a lines
    lines=(${{(f)"$("${{words[1]}}" {COMPLETE} "${{(@)words[2,CURRENT]}}" 2>/dev/null)"}})
    (( $#lines )) && compadd -- "${{(@)lines%%$'\\t'*}}" || _files
}}
compdef _runplan runplan"""

FISH = f"""\
function __runplan_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] {COMPLETE} $words[2..] 2>/dev/null
end
complete -c runplan -f -a '(__runplan_complete)'
complete -c runplan -n '__fish_seen_subcommand_from check' -F"""


def run_help(args: argparse.Namespace) -> None:
    print(parser_of(require_verb(args.verb)).format_help().rstrip() if args.verb else usage())


def run_completion(args: argparse.Namespace) -> None:
    print({"bash": BASH, "zsh": ZSH, "fish": FISH}[args.shell])


def print_candidates(words: Sequence[str]) -> None:
    """Print the words that may stand in place of the last one, each with a description after a tab."""
    *before, current = words or [""]
    for word, description in _list_candidates(before, current):
        if word.startswith(current) and word not in before:
            print(f"{word}\t{description.partition(chr(10))[0]}")


def _list_candidates(before: Sequence[str], current: str) -> Iterable[tuple[str, str]]:
    lines = [(name, verb.line) for name, verb in VERBS.items()]
    if not before:
        return lines
    verb = before[0]
    actions = parser_of(verb)._actions if verb in VERBS else ()  # noqa: SLF001 - argparse has no other way to list them
    with_value = {name for action in actions if action.nargs != 0 for name in action.option_strings}
    if before[-1] in with_value:
        return ()
    shown = (action for action in actions if action.help != argparse.SUPPRESS)
    options = [(name, action.help or "") for action in shown for name in action.option_strings if name.startswith("--")]
    typed = [word for previous, word in pairwise(before) if not word.startswith("-") and previous not in with_value]
    places = [action for action in actions if not action.option_strings]
    if current.startswith("-") or not places or (len(typed) >= len(places) and places[-1].nargs != "*"):
        return options
    place = places[min(len(typed), len(places) - 1)]
    match place.dest:
        case "plan":
            return _list_plans(with_paths=bool(current))
        case "phase":
            return ((phase.id, phase.title) for phase in _read_plans(typed[0])[0].phases)
        case "options":
            phases = _read_plans(typed[0])[0].phases if verb == "start" else ()
            is_open = ((phase.id, phase.title) for phase in phases if phase.status != "done")
            return (*is_open, *((word, "") for word in WORDS[verb]))
        case "verb":
            return lines
        case _:
            return ((str(choice), "") for choice in place.choices or ())


def _read_plans(word: str) -> list[PlanView]:
    caller = Caller()
    with caller.open(lenient=True) as context:
        return read_plans(context, word, datetime.now(UTC), warn=caller.warn)[0]


def _list_plans(*, with_paths: bool) -> Iterator[tuple[str, str]]:
    paths = sorted(list_paths(Caller()))
    names = [word_of(path) for path in paths]
    for name, path in zip(names, paths, strict=True):
        if names.count(name) == 1:
            yield name, path
        if with_paths or names.count(name) > 1:
            yield path, ""
