"""Writes settings that fit a repository, shows them; removes what ended runs, or all of runplan, left behind."""

import contextlib
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from runplan import __version__
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.configuration import places
from runplan.adapters.git.command import ANY
from runplan.adapters.store.files import LARGEST, is_held, read_bounded, remove_directory
from runplan.adapters.store.location import hide_password
from runplan.adapters.store.protocol import open_store
from runplan.app.health import describe_sandbox, make_check
from runplan.app.machine import change_service, control_daemon
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, operation
from runplan.app.operations.requests import ForgetRequest
from runplan.app.views.inspection import RepositoryFacts, describe_commits, inspect_repository, known_agents
from runplan.domain.checks.runners.naming import foresee_unnamed
from runplan.domain.errors import NotFound, RefusedEarly, RunplanError
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.names import HEADS, PARKED
from runplan.domain.settings.schema import FILES, KEYS, USER_SECTIONS, Settings
from runplan.domain.text import command, toml_value
from runplan.engine.loop.advance import LOCK
from runplan.engine.loop.context import RepositoryContext, context_at, settings_note, spec_plans
from runplan.engine.loop.leftovers import collect_leftovers, remove_built_images
from runplan.engine.report.lessons import FORGOTTEN, Lesson, read_lessons
from runplan.hosts.daemon import client
from runplan.hosts.daemon.service import find_installed
from runplan.hosts.daemon.state import REPOSITORIES, Known, hold_lock, list_repositories, read_holder

#: Claude Code and opencode read it there.
SKILL = ".claude/skills/run-plan/SKILL.md"
_COLUMN = 34  # where the reasons begin
PROPOSED_USD = 20.0  #: as a limit of a plan
_EXAMPLES = {
    "limits": f"""
# A proposal: a plan that has cost so much stops. Without dollars, set plan_tokens or plan_wall.
# plan_usd = {PROPOSED_USD}
""",
    "agents": """
# Any command can be an agent; name it above.
# [agents.local]
# kind = "command"
# argv = ["python3", "tools/agent.py"]
""",
    "tests": """
# Further commands that have to pass on every change; those with parallel = true run at the same time.
# [gates.lint]
# command = "ruff check"
# timeout = "30m"
# parallel = true
""",
}
_INIT_HEAD = """\
# Settings of runplan for this repository, written by `runplan init`.
# Commented lines show the default. `runplan config` prints every value and its origin.
"""
_NO_AGENT = """\
# None of the known agents ({known}) was found on PATH.
# Install one, or use any command as an agent: see [agents.local] below.
"""
_INTERFACES = """\
# A proposal: you sign off changes of the interface. [try] has an agent use them before.
# sign_off = {}
"""


class Initialized(Struct, frozen=True, kw_only=True):
    file: Path  #: that was written
    facts: RepositoryFacts | None = None  #: that its settings fit; None of a skill
    specs: tuple[str, ...] = ()  #: the plans of other tools that were found
    unnamed: str = ""  #: why the tests that fail will have no names
    sandbox: str = ""  #: what the processes of a run see and may write


def init(caller: Caller, *, skill: bool) -> Initialized:
    """Write a runplan.toml that fits the repository, or the skill; a file that exists stays."""
    caller.refuse_to_agents("init")
    with context_at(caller.cwd, caller.env, lambda _root, _env: Settings()) as context:
        root = context.root
        if skill:
            shipped = (place / "config" / SKILL.removeprefix(".claude/") for place in Path(__file__).parents[2:4])
            _create_file(root / SKILL, next(path for path in shipped if path.is_file()).read_text(encoding="utf-8"))
            return Initialized(file=root / SKILL)
        facts = inspect_repository(context)
        file = places.repository_file(root) or root / "runplan.toml"
        _create_file(file, settings_text(facts))
        with make_check("sandbox", []) as sandbox:
            sandbox.detail, sandbox.remedy = describe_sandbox(context.with_settings())
    tools = facts.toolchain
    unnamed = foresee_unnamed(tools.tests, tools.junit, lambda name: read_bounded(root / name, largest=LARGEST))
    return Initialized(file=file, facts=facts, specs=tuple(spec_plans(root)), unnamed=unnamed, sandbox=sandbox.detail)


def _create_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RefusedEarly(f"{path} exists and was not changed; move it away to have it written again") from None
    except OSError as error:
        raise RefusedEarly(f"{path}: cannot be written: {error.strerror}") from None


def settings_document(head: str, values: Mapping[str, object], notes: Mapping[str, str] = {}) -> str:
    sections = (section for section in dict.fromkeys(key.section for key in KEYS) if section not in USER_SECTIONS)
    texts = {section: lines for section in sections if (lines := keys_text(section, values))}
    shown = (f"[{name}]\n{notes.get(name, '')}{lines}{_EXAMPLES.get(name, '')}" for name, lines in texts.items())
    return "\n".join([head, *shown])


def keys_text(section: str, values: Mapping[str, object]) -> str:
    lines = []
    for key in (key for key in KEYS if key.section == section):
        comment = "" if key.path in values else "# "
        written = f"{comment}{key.name} = {toml_value(values.get(key.path, key.written))}"
        lines.append(f"{written:<{_COLUMN}}  # {key.why}\n")
    return "".join(lines)


def settings_text(facts: RepositoryFacts) -> str:
    """The runplan.toml that fits the repository; keys for which nothing was found are commented out."""
    tools = facts.toolchain
    values = {
        **choose_agents(facts.installed),
        "run.target": facts.default_branch,
        "run.remote": "" if "origin" in facts.remotes else next(iter(facts.remotes), ""),
        "run.setup": tools.setup,
        "tests.command": tools.tests,
        "tests.junit": tools.junit,
        "tests.paths": tools.paths,
        "tests.env": facts.variables if tools.setup or tools.tests else (),
    }
    values |= {f"agents.container.{key}": value for key, value in facts.container.items()}
    notes = {} if facts.installed else {"agents": _NO_AGENT.format(known=", ".join(known_agents()))}
    notes |= {"run": _INTERFACES.format(toml_value(facts.interfaces))} if facts.interfaces else {}
    return settings_document(_INIT_HEAD, {key: value for key, value in values.items() if value}, notes)


def choose_agents(installed: tuple[str, ...]) -> dict[str, str]:
    """The agent of each role. The verifier is another agent than the implementer if two are installed."""
    if not installed:
        return {}
    first = installed[0]
    second = installed[min(1, len(installed) - 1)]
    return {"agents.implementer": first, "agents.verifier": second, "agents.planner": first}


def describe_agents(installed: tuple[str, ...]) -> str:
    """Who takes which role; with fewer than two agents also how to install another one."""
    roles = choose_agents(installed)
    installs = {kind: agent_of(kind).install for kind in known_agents() if kind not in installed}
    if not roles:
        lines = (f"  {kind:<10}{line}" for kind, line in installs.items())
        rest = "or name any command under [agents] in the file; runplan demo shows a run without any agent"
        return "\n".join(["none of the known ones is installed; install one, and name it in the file:", *lines, rest])
    implementer, verifier = roles["agents.implementer"], roles["agents.verifier"]
    if implementer != verifier:
        return f"{implementer} implements, {verifier} verifies"
    other, line = next(iter(installs.items()))
    second = f"a second agent as verifier finds what the first one overlooks: {line}"
    return f'{implementer} implements and verifies\n{second}\nthen set agents.verifier = "{other}" in the file'


class Setting(Struct, frozen=True):
    key: str
    value: object  #: addresses without the parts that may be secret
    origin: str


def read_settings(caller: Caller) -> list[Setting]:
    """The settings that a start uses; says so if the checkout has others."""
    with caller.open() as context:
        loaded = context.committed_settings()
        if note := settings_note(context):
            caller.say(note)
    settings = []
    for key, value in loaded.values.items():
        shown = value
        if key == "notify.webhook" and value:
            address = urlsplit(str(value))
            shown = f"{address.scheme}://{address.hostname}/…"
        elif key == "fleet.dsn":
            shown = hide_password(str(value))
        elif key == "notify.urls" and isinstance(value, list):
            shown = [_redact_target(entry) for entry in value]
        settings.append(Setting(key, shown, loaded.origins[key]))
    return settings


def _redact_target(entry: object) -> object:
    """Only the scheme is shown: the host in tgram:// or ntfy:// is a secret."""
    if isinstance(entry, dict):
        return entry | {"url": _redact_target(entry["url"])}
    return f"{str(entry).partition(':')[0]}://…"


def gc(caller: Caller, *, dry_run: bool) -> tuple[list[Removed | Kept], list[Removed | Kept]]:
    """What became of worktrees and refs, a kept ref with the date and subject of its commit; and of logs."""
    if not dry_run:
        caller.refuse_to_agents("gc")
    with caller.open() as context:
        answers, logs = collect_leftovers(context, dry_run=dry_run)
        tips = [answer.tip for answer in answers if isinstance(answer, Kept) and answer.tip]
        about = describe_commits(context, tips) if tips else {}
    for place, answer in enumerate(answers):
        if isinstance(answer, Kept) and answer.tip:
            answers[place] = replace(answer, why=f"{answer.why}: {about[answer.tip]}")
    return answers, logs


def list_lessons(caller: Caller) -> list[Lesson]:
    with caller.open(lenient=True) as context:
        return read_lessons(context.store())


@operation
def forget(caller: Caller, request: ForgetRequest) -> Answer:
    """What is forgotten is never told again, also when it is learned again."""
    with caller.open(lenient=True) as context:
        lessons = [lesson for lesson in read_lessons(context.store()) if request.id in ("", lesson.id)]
        if request.id and not lessons:
            raise NotFound(f"there is no lesson {request.id}; see: runplan memory")
        if lessons:
            with closing(open_store(context.journal)) as store:
                for lesson in lessons:
                    store.record_notice(FORGOTTEN, lesson.id)
    for lesson in lessons:
        caller.say(f"forgotten: {lesson.text}")
    return Accepted() if lessons else Declined()


def uninstall(caller: Caller, *, dry_run: bool, delete_work: bool) -> list[Removed | Kept]:
    """Remove the state of this repository, and that of the home when no other repository uses it.

    Outside of a repository only the home is looked at. Refused while a run or a schedule needs the state.
    """
    if not dry_run:
        caller.refuse_to_agents("uninstall")
    if caller.user_settings.fleet.dsn:
        raise RefusedEarly("a fleet works on your plans; take fleet.dsn out of your settings first")
    state = places.state_directory(caller.env)
    here = None
    try:
        with caller.open(lenient=True) as context:
            here = Known(common=str(context.common_dir), root=str(context.root))
            _require_no_work(context)
    except RunplanError as error:
        if here is not None and not dry_run:
            raise
        if dry_run:
            home = f"{error}; only the files in the home are looked at"
            caller.say(home if here is None else f"uninstall would be refused: {error}")
    others = [known for known in list_repositories(state) if here is None or known.common != here.common]
    if dry_run:
        return _remove_everything(caller, here, others, dry_run=True, delete_work=delete_work)
    was_running = read_holder(state) is not None
    if was_running:  # it has the journals open
        caller.say("Stopping the daemon")
        control_daemon(replace(caller, say=lambda _: None), "stop")  # how to start it again is no help here
    try:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with hold_lock(state, version=__version__, since=now):  # no daemon starts meanwhile
            return _remove_everything(caller, here, others, dry_run=False, delete_work=delete_work)
    finally:
        if was_running and state.is_dir():  # others use it, or the removal was refused
            client.reach_daemon(caller.env).close()


def _require_no_work(context: RepositoryContext) -> None:
    store = context.store()
    if plans := store.list_active_plans(queued=True):
        stop = command("runplan", "stop")
        raise RefusedEarly(f"{', '.join(sorted(plans))}: a run or a schedule is not ended; end it first: {stop}")
    locks = (context.state / LOCK, *(context.state / "dispatch").glob("*/lock"))
    if held := next(filter(is_held, locks), None):
        raise RefusedEarly(f"a process of runplan still works here and holds {held}; wait until it has ended")


def _remove_everything(
    caller: Caller, here: Known | None, others: list[Known], *, dry_run: bool, delete_work: bool
) -> list[Removed | Kept]:
    answers: list[Removed | Kept] = []
    if here is not None:
        answers += _remove_from_repository(caller, here, dry_run=dry_run, delete_work=delete_work)
    state = places.state_directory(caller.env)
    for known in others:
        record = state / REPOSITORIES / f"{known.key}.json"
        absent = f"{known.root} is not there; make it reachable, or delete {record}"
        used = f"in use by {known.root}; run `runplan uninstall` there, too"
        answers.append(Kept(what=str(state), why=used if known.state.is_dir() else absent))
    if (clones := state / "fleet").is_dir():
        answers.append(Kept(what=str(clones), why="a worker of a fleet may have work there that did not land"))
    elif not others:
        if (service := find_installed(caller.env)) is not None:
            answers.append(Removed(what=str(service.file)))
            if not dry_run:
                change_service(caller, "uninstall", dry_run=False)
        answers += _remove(state, dry_run=dry_run)
    if (file := places.user_file(caller.env)).is_file():
        answers.append(Kept(what=str(file), why="you wrote it"))
    return answers


def _remove_from_repository(caller: Caller, here: Known, *, dry_run: bool, delete_work: bool) -> list[Removed | Kept]:
    answers: list[Removed | Kept] = []
    with caller.open(lenient=True) as context:
        for answer in gc(caller, dry_run=dry_run)[0]:
            if isinstance(answer, Kept) and answer.tip and delete_work:
                if not dry_run:
                    context.git.run("update-ref", "--no-deref", "-d", answer.what, answer.tip)
                answers.append(Removed(what=answer.what))
            else:
                answers.append(answer)
        if not dry_run:
            _require_no_work(context)  # gc took its time
            _require_nothing_is_lost(context, answers, delete_work=delete_work)
        answers += remove_built_images(context, newest=0, dry_run=dry_run)
        root = places.worktree_root(context.root, context.settings, context.env)
        answers += _remove(context.state, dry_run=dry_run)
        if not dry_run:
            places.remove_unused_root(root, context.settings)
            (places.state_directory(caller.env) / REPOSITORIES / f"{here.key}.json").unlink(missing_ok=True)
        paths = context.settings.paths
        for name in (*FILES, paths.plans, paths.reports):
            if (context.root / name).exists():
                answers.append(Kept(what=name, why=f"it belongs to the project; to remove it: git rm -r {name}"))
    return answers


def _require_nothing_is_lost(context: RepositoryContext, answers: list[Removed | Kept], *, delete_work: bool) -> None:
    """Refuse when a worktree, or a ref that is not in the user's repository, would go with the state."""
    for answer in answers:
        if isinstance(answer, Kept) and Path(answer.what).is_absolute():
            raise RefusedEarly(f"{answer.what} was kept: {answer.why}; nothing else was removed. Move it away first")
    tool = context.state / "tool.git"
    if delete_work or not tool.is_dir():
        return
    prefix = context.settings.run.branch_prefix
    made_here = (PARKED, *([f"{HEADS}{prefix}"] if prefix else []))
    for ref, tip in context.git.at(context.root, f"--git-dir={tool}").list_refs(tool).items():
        if ref.startswith(made_here):
            branches = context.git.run("for-each-ref", "--count=1", f"--contains={tip}", ok=ANY)
            if branches.code != 0 or not branches.text:
                raise RefusedEarly(f"{ref} in {tool} is in no branch of this repository; runplan gc says why")


def _remove(directory: Path, *, dry_run: bool) -> list[Removed | Kept]:
    if not directory.is_dir():
        return []
    if not dry_run:
        remove_directory(directory)
        with contextlib.suppress(OSError):  # others use it
            directory.parent.rmdir()
    return [Removed(what=str(directory))]
