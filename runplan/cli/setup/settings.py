"""runplan init and config: write a runplan.toml that fits the repository, and print the settings."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.clis import agent_of
from runplan.agents.environment import FETCHING
from runplan.cli.terminal import as_json
from runplan.engine.context import open_context, settings_note, spec_plans
from runplan.errors import GitFailed, RefusedEarly, Unreachable
from runplan.gitfacts import Identity, read_person
from runplan.names import PLAN_FILE
from runplan.settings.load import environment, list_agent_kinds
from runplan.settings.places import repository_file
from runplan.settings.schema import KEYS, SECTIONS, USER_SECTIONS, Key
from runplan.settings.toolchain import Toolchain, detect, manifests
from runplan.text import command, committing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from git import Git, Repo


_NO_AGENT = """\
# None of the known agents ({known}) was found on PATH.
# Install one, or use any command as an agent: see [agents.local] below.
"""


def run_config(args: argparse.Namespace) -> None:
    with open_context() as context:
        loaded = context.committed_settings()
        if note := settings_note(context):
            print(f"runplan: {note}", file=sys.stderr)
    if args.json:
        rows = [{"key": key, "value": value, "origin": loaded.origins[key]} for key, value in loaded.values.items()]
        print(as_json(rows))
        return
    shown = {key: toml_value(value) for key, value in loaded.values.items()}
    keys = max(map(len, shown))
    values = max(map(len, shown.values()))
    for key, value in shown.items():
        print(f"{key:<{keys}}  {value:<{values}}  {loaded.origins[key]}")


def run_init(_args: argparse.Namespace) -> None:
    facts = look_around(Path.cwd(), env=environment())
    root = Path(facts.root)
    path = repository_file(root) or root / "runplan.toml"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_text(facts))
    except FileExistsError:
        raise RefusedEarly(f"{path} exists and was not changed; see runplan config") from None
    except OSError as error:
        raise RefusedEarly(f"{path}: cannot be written: {error.strerror}") from None
    print(_describe_settings(facts, path))


def settings_text(facts: Facts) -> str:
    """The runplan.toml that fits the repository; keys for which nothing was found are commented out."""
    values: dict[str, object] = dict(_choose_agents(facts.installed))
    if facts.default_branch:
        values["run.target"] = facts.default_branch
    if facts.remotes and "origin" not in facts.remotes:
        values["run.remote"] = facts.remotes[0]
    if facts.toolchain.setup:
        values["run.setup"] = facts.toolchain.setup
    if facts.toolchain.tests:
        values["tests.command"] = facts.toolchain.tests
    if facts.variables and (facts.toolchain.setup or facts.toolchain.tests):
        values["tests.env"] = facts.variables
    return settings_document(
        _INIT_HEAD, values, "" if facts.installed else _NO_AGENT.format(known=", ".join(known_agents()))
    )


def _choose_agents(installed: tuple[str, ...]) -> dict[str, str]:
    """The agent of each role. The verifier is another agent than the implementer if two are installed."""
    if not installed:
        return {}
    first = installed[0]
    second = installed[min(1, len(installed) - 1)]
    return {"agents.implementer": first, "agents.verifier": second, "agents.planner": first}


def _describe_settings(facts: Facts, path: Path) -> str:
    roles = _choose_agents(facts.installed)
    agents = f"{roles['agents.implementer']} implements, {roles['agents.verifier']} verifies" if roles else ""
    identity = facts.identity and f"{facts.identity.name} <{facts.identity.email}>"
    specs = (path.removesuffix(f"/{PLAN_FILE}") for path in spec_plans(Path(facts.root)))
    rows = (
        ("repository", facts.root),
        ("target", facts.default_branch or "no branch yet"),
        ("identity", identity or "git has no user.name and user.email"),
        ("set-up", facts.toolchain.setup or "none; a fresh worktree has only committed files"),
        ("tests", facts.toolchain.tests or "no test command found; set tests.command"),
        ("agents", agents or "none of the known agents is installed; name any command under [agents] in the file"),
        *(("spec", command("runplan", "start", folder, "finish", "auto")) for folder in specs),
        ("wrote", str(path)),
    )
    table = "\n".join(f"{name:<12}{value}" for name, value in rows)
    return f"{table}\n\nNext: runplan doctor; then commit it: {committing(path.name, 'Settings of runplan')}"


# --- settings as TOML ---------------------------------------------------------------------------------------

_COLUMN = 34  # where the reasons begin

_EXAMPLES = {
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


def toml_value(value: object) -> str:
    """One value as TOML writes it (a JSON string is a TOML basic string)."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def settings_document(head: str, values: Mapping[str, object], agents_note: str = "") -> str:
    """A runplan.toml with these values; all other keys are commented out."""
    parts = [head]
    for section in SECTIONS:
        if section not in USER_SECTIONS and (lines := keys_text(section, values)):
            note = agents_note if section == "agents" else ""
            parts.append(f"[{section}]\n{note}{lines}{_EXAMPLES.get(section, '')}")
    return "\n".join(parts)


def keys_text(section: str, values: Mapping[str, object]) -> str:
    return "".join(_format_line(key, values) for key in KEYS if key.section == section)


def _format_line(key: Key, values: Mapping[str, object]) -> str:
    comment = "" if key.path in values else "# "
    written = f"{comment}{key.name} = {toml_value(values.get(key.path, key.written))}"
    return f"{written:<{_COLUMN}}  # {key.why}\n"


# --- the facts that init needs ------------------------------------------------------------------------------


class Facts(Struct, frozen=True, kw_only=True):
    root: str  #: the main checkout
    default_branch: str  #: that of the remote, else main, master or the current one; "" for none
    identity: Identity | None
    remotes: tuple[str, ...]
    installed: tuple[str, ...]  #: the known agents whose program is on PATH, in the order they are suggested
    toolchain: Toolchain
    variables: tuple[str, ...] = ()  #: names of those that package managers and compilers read here


def known_agents() -> tuple[str, ...]:
    """The agents whose programs can be looked for, in the order they are suggested."""
    known = {kind: agent_of(kind) for kind in list_agent_kinds() if agent_of(kind).program}
    return tuple(sorted(known, key=lambda kind: (known[kind].rank, kind)))


def look_around(start: Path, *, env: Mapping[str, str]) -> Facts:
    """The facts of the repository around `start`; refused without a repository or without a checkout."""
    try:
        import git
    except ImportError as error:  # GitPython looks for git when it is imported
        raise Unreachable("git was not found on PATH; install git 2.38 or newer") from error
    try:
        # GitPython would expand variables in a path.
        repo = git.Repo(start, search_parent_directories=True, expand_vars=False)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        raise RefusedEarly(f"{start} is not in a git repository; run git init, or go to one") from None
    with repo:
        if repo.bare:
            raise RefusedEarly(f"{repo.git_dir} is a bare repository, without a checkout; go to a clone of it")
        try:
            return _inspect_repository(repo, env)
        except git.GitCommandError as error:
            message = str(error.stderr).strip().removeprefix("stderr: ").strip("'\n ")
            raise GitFailed(f"{repo.working_dir}: git {error.command[1]} failed: {message}") from error


def _inspect_repository(repo: Repo, env: Mapping[str, str]) -> Facts:
    git = repo.git
    common = Path(os.path.normpath(repo.common_dir))
    path = env.get("PATH", os.defpath)
    # Without useConfigOnly git guesses an identity from the host name.
    person, when = read_person(_ask_git(git, "-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT"))
    places = (":(top,glob)*", ":(top)tests", ":(top)test")
    listed = git.ls_files("-z", "--full-name", "--cached", "--others", "--exclude-standard", "--", *places)
    files = [name for name in listed.split("\0") if (Path(repo.working_dir) / name).is_file()]
    texts = {name: (Path(repo.working_dir) / name).read_text("utf-8", errors="replace") for name in manifests(files)}
    return Facts(
        root=str(common.parent) if common.name == ".git" else str(repo.working_dir),
        default_branch=_default_branch(git),
        identity=person if when else None,
        remotes=tuple(git.remote().splitlines()),
        installed=tuple(kind for kind in known_agents() if shutil.which(agent_of(kind).program, path=path)),
        toolchain=detect(files, texts),
        variables=tuple(sorted(FETCHING & env.keys())),
    )


def _default_branch(git: Git) -> str:
    branches = git.for_each_ref("--format=%(refname:lstrip=2)", "refs/heads").split()
    remote = _ask_git(git, "symbolic-ref", "-q", "refs/remotes/origin/HEAD").removeprefix("refs/remotes/origin/")
    current = _ask_git(git, "symbolic-ref", "-q", "--short", "HEAD")
    if not branches:
        return current
    return next((name for name in (remote, "main", "master", current) if name in branches), branches[0])


def _ask_git(git: Git, *args: str) -> str:
    return str(git.execute(["git", *args], with_exceptions=False))
