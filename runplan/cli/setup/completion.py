"""runplan completion: print a completion script for a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import Exit
from runplan.settings.schema import LANDINGS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

EXAMPLES = """\
  runplan completion bash      in ~/.bashrc: source <(runplan completion bash)
  runplan completion zsh       in ~/.zshrc: source <(runplan completion zsh)
  runplan completion fish      into ~/.config/fish/completions/runplan.fish"""

#: The words after PLAN, which the parser of `start` does not list.
START = ("finish", "auto", *LANDINGS, "every", "now")

BASH = """\
_runplan() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{verbs}" -- "$cur"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur") $(compgen -f -X '!*.md' -- "$cur") $(compgen -d -- "$cur"))
}}
complete -o filenames -F _runplan runplan"""

#: zsh understands the functions of bash.
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that completes")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.main import VERBS, parser_of

    words = {verb: _words(parser_of(verb)) for verb in VERBS}
    words["start"] = [*START, *words["start"]]
    match args.shell:
        case "bash":
            print(_bash(words))
        case "zsh":
            print(ZSH + _bash(words))
        case _:
            print(_fish(words, VERBS))
    return Exit.DONE


def _words(parser: argparse.ArgumentParser) -> list[str]:
    actions = parser._actions  # noqa: SLF001 - argparse has no other way to list them
    options = [option for action in actions for option in action.option_strings if option.startswith("--")]
    return [*(word for action in actions for word in action.choices or ()), *options]


def _bash(words: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f'    {verb}) words="{" ".join(found)}" ;;' for verb, found in words.items())
    return BASH.format(verbs=" ".join(words), cases=cases)


def _fish(words: Mapping[str, Sequence[str]], lines: Mapping[str, str]) -> str:
    found = [
        "complete -c runplan -f",
        "complete -c runplan -n 'not __fish_use_subcommand' -a '(__fish_complete_suffix .md)'",
    ]
    for verb, line in lines.items():
        found.append(f"complete -c runplan -n __fish_use_subcommand -a {verb} -d '{line}'")
        for word in words[verb]:
            given = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}"
            found.append(f"complete -c runplan -n '__fish_seen_subcommand_from {verb}' {given}")
    return "\n".join(found)
