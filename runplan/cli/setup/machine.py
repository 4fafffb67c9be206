"""runplan service, daemon and completion: the login service (systemd or launchd), the daemon, and the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.cli.terminal import as_json
from runplan.errors import Exit
from runplan.settings.schema import LANDINGS

if TYPE_CHECKING:
    import argparse

    from runplan.daemon.service import Manager, Standing


# --- daemon and service -----------------------------------------------------------------------------------


def run_daemon(_args: argparse.Namespace) -> Exit:
    from runplan.daemon.process import serve
    from runplan.settings.load import environment

    serve(environment())
    return Exit.DONE


def run_service(args: argparse.Namespace) -> Exit:
    from runplan.daemon import service
    from runplan.engine.context import refuse_under_agent
    from runplan.settings.load import environment

    env = environment()
    manager = service.manager(env)
    if args.action == "status":
        standing = service.standing(manager, env)
        print(as_json(standing) if args.json else _describe(standing))
        return Exit.DONE
    refuse_under_agent(f"service {args.action}")
    if args.dry_run:
        _show(manager, args.action)
    elif args.action == "install":
        enabled = service.install(manager, env)
        print(f"wrote {manager.file}")
        by_hand = " && ".join(" ".join(command) for command in manager.enables)
        later = f"Not started: no {manager.asks[0]} user session here. Once you have one, run: {by_hand}"
        print("the daemon runs, and starts at each login" if enabled else later)
    else:
        is_removed = service.uninstall(manager, env)
        print(f"removed {manager.file}" if is_removed else f"there is no {manager.file}")
    return Exit.DONE


def _show(manager: Manager, what: str) -> None:
    print(f"# {manager.file}")
    if what == "install":
        print(manager.text, end="")
    for command in manager.enables if what == "install" else manager.disables:
        print(f"# {' '.join(command)}")


def _describe(standing: Standing) -> str:
    if not standing.installed:
        return f"not installed; there is no {standing.file}\ninstall it: runplan service install"
    lines = [f"installed as {standing.file}, {'running' if standing.active else 'not running'}"]
    if not standing.answers:
        lines.append("no user session of the service manager here")
    if not standing.current:
        lines.append("written by another version or for another PATH; write it again: runplan service install")
    return "\n".join(lines)


# --- completion -------------------------------------------------------------------------------------------

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


def run_completion(args: argparse.Namespace) -> Exit:
    from runplan.cli.main import parser_of
    from runplan.cli.verbs import VERBS

    words = {verb: _words(parser_of(verb)) for verb in VERBS}
    words["start"] = [*START, *words["start"]]
    words["watch-issues"] = ["every", "now", *words["watch-issues"]]
    if args.shell == "fish":
        print(_fish(words, {verb: line for verb, (_, line, _) in VERBS.items()}))
        return Exit.DONE
    if args.shell == "zsh":  # it understands the functions of bash
        print("autoload -U +X bashcompinit && bashcompinit")
    cases = "\n".join(f'    {verb}) words="{" ".join(found)}" ;;' for verb, found in words.items())
    print(BASH.format(verbs=" ".join(words), cases=cases))
    return Exit.DONE


def _words(parser: argparse.ArgumentParser) -> list[str]:
    actions = parser._actions  # noqa: SLF001 - argparse has no other way to list them
    options = [option for action in actions for option in action.option_strings if option.startswith("--")]
    return [*(word for action in actions for word in action.choices or ()), *options]


def _fish(words: dict[str, list[str]], lines: dict[str, str]) -> str:
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
