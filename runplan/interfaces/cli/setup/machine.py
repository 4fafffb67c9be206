"""The set-up of a repository and of this machine: init, config, doctor, gc; daemon, service, notify."""

import argparse
from collections import Counter

from msgspec import to_builtins

from runplan.app import machine
from runplan.app.health import examine
from runplan.app.operations.model import Caller
from runplan.app.operations.upkeep import PROPOSED_USD, SKILL, describe_agents, gc, init, read_settings, uninstall
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit, UsageError
from runplan.domain.gitfacts import Kept
from runplan.domain.names import PLAN_FILE
from runplan.domain.text import command, committing, counted, plain, toml_value, visible
from runplan.interfaces.cli.show import progress
from runplan.interfaces.cli.terminal import say


def run_config(args: argparse.Namespace) -> None:
    settings = read_settings(Caller(say=say))
    if args.json:
        print(as_json(settings))
        return
    shown = [(setting.key, toml_value(setting.value), setting.origin) for setting in settings]
    keys, values, _ = (max(map(len, column)) for column in zip(*shown, strict=True))
    for key, value, origin in shown:
        print(f"{key:<{keys}}  {value:<{values}}  {origin}")


def run_init(args: argparse.Namespace) -> None:
    written = init(Caller(), skill=args.skill)
    facts = written.facts
    if facts is None:
        commit = committing(SKILL, "Skill for runplan")
        print(f"wrote {written.file}\n\nNext: /run-plan PLAN in your agent; then commit it: {commit}")
        return
    identity = facts.identity and f"{facts.identity.name} <{facts.identity.email}>"
    specs = (path.removesuffix(f"/{PLAN_FILE}") for path in written.specs)
    tools = facts.toolchain
    shown = toml_value(facts.interfaces)
    image = next(iter(facts.container.values()), "")
    rows = (
        ("repository", facts.root),
        ("target", facts.default_branch or "no branch yet"),
        ("identity", identity or "git has no user.name and user.email"),
        ("set-up", tools.setup or "none; a fresh worktree has only committed files"),
        ("tests", tools.tests or "no test command found; set tests.command"),
        *([("", written.unnamed)] if written.unnamed else []),
        ("agents", describe_agents(facts.installed)),
        ("limit", f"none yet; a proposal in runplan.toml: limits.plan_usd = {PROPOSED_USD:.0f} stops a plan there"),
        *([("interface", f"a proposal in runplan.toml: run.sign_off = {shown}")] if facts.interfaces else []),
        *([("container", f'{image} is in runplan.toml; agents.sandbox = "container" uses it')] if image else []),
        ("sandbox", written.sandbox),
        *(("spec", command("runplan", "start", folder, "finish", "auto")) for folder in specs),
        ("wrote", str(written.file)),
    )
    table = "\n".join(f"{name:<12}{value}".replace("\n", f"\n{'':<12}") for name, value in rows)
    commit = committing(written.file.name, "Settings of runplan")
    print(f"{table}\n\nNext: runplan doctor; then commit it: {commit}")


def run_doctor(args: argparse.Namespace) -> Exit:
    caller = Caller(say=progress.say, show=progress.show_event)
    with progress.live_line():
        checks = examine(caller, runs_once=args.run)
    if args.json:
        print(as_json([{"name": check.name, "ok": check.ok, **to_builtins(check)} for check in checks]))
    for check in checks if not args.json else ():
        detail = check.detail.replace("\n", f"\n{'':<18}")
        remedy = f"\n      {'':<12}-> {check.remedy}" if check.remedy else ""
        print(visible(f"{check.state:<4}  {check.name:<12}{detail}{remedy}", is_prose=True))
    return Exit.DONE if all(check.ok for check in checks) else Exit.USAGE


def run_gc(args: argparse.Namespace) -> None:
    answers, logs = gc(Caller(), dry_run=args.dry_run)
    if args.json:
        print(as_json([{"answer": type(left).__name__.lower(), **to_builtins(left)} for left in (*answers, *logs)]))
        return
    verb = "would remove" if args.dry_run else "removed"
    for answer in answers:
        print(plain(f"kept  {answer.what}: {answer.why}" if isinstance(answer, Kept) else f"{verb}  {answer.what}"))
    # Logs are many, so those with the same answer and place share a line.
    places = ((log.why if isinstance(log, Kept) else "", log.what.rpartition("/")[0]) for log in logs)
    for (why, place), count in sorted(Counter(places).items()):
        many = f"{counted(count, 'log')} of agents and checks in {place}"
        print(plain(f"kept  {many}: {why}" if why else f"{verb}  {many}: their phases have landed"))
    if not answers and not logs:
        print("Nothing is left over.")


def run_uninstall(args: argparse.Namespace) -> None:
    answers = uninstall(Caller(say=progress.say), dry_run=args.dry_run, delete_work=args.delete_work)
    if args.json:
        print(as_json([{"answer": type(answer).__name__.lower(), **to_builtins(answer)} for answer in answers]))
        return
    for answer in answers:
        if isinstance(answer, Kept):
            print(plain(f"keep    {answer.what}: {answer.why}"))
        else:
            kept = f"; its work is kept as {answer.parked}" if answer.parked else ""
            print(plain(f"remove  {answer.what}{kept}"))
    if not answers:
        print("Nothing of runplan is left here")
    if any(isinstance(answer, Kept) and answer.tip for answer in answers):
        print("\nKept work can be looked at with git log REF; to delete it, too: runplan uninstall --delete-work")
    if not args.dry_run:
        print("\nDone. The program itself: uv tool uninstall runplan, or that of pipx or pip")


def run_daemon(args: argparse.Namespace) -> None:
    machine.control_daemon(Caller(say=progress.say), args.action)


def run_notify(args: argparse.Namespace) -> Exit:
    if not args.test:
        raise UsageError("notify: say what to send: runplan notify --test")
    code = Exit.DONE
    for name, why in machine.send_test_notice(Caller()):
        print(f"{name}: failed: {plain(why)}" if why else f"{name}: sent", flush=True)
        code = Exit.UNREACHABLE if why else code
    return code


def run_service(args: argparse.Namespace) -> None:
    if args.action == "status":
        state = machine.inspect_service(Caller())
        if args.json:
            print(as_json(state))
        elif not state.installed:
            print(f"not installed; there is no {state.file}\ninstall it: runplan service install")
        else:
            print(f"installed as {state.file}, {'running' if state.active else 'not running'}")
            if not state.answers:
                print("no user session of the service manager here")
            if not state.current:
                print("written by another version or for another PATH; write it again: runplan service install")
        return
    print(machine.change_service(Caller(), args.action, dry_run=args.dry_run))
