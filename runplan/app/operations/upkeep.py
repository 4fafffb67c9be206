"""Sets a repository up with files that fit it, and removes what ended runs left behind."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from runplan.adapters.configuration.places import repository_file
from runplan.adapters.store.files import LARGEST, read_bounded
from runplan.app.health import check_sandbox
from runplan.app.operations.model import Accepted, Caller, Collect, Initialize, operation
from runplan.app.settings import settings_text
from runplan.app.views.inspection import Facts, describe_commits, inspect_repository
from runplan.domain.checks.runners.naming import foresee_unnamed
from runplan.domain.errors import RefusedEarly
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.settings.schema import Settings
from runplan.engine.loop.context import RepositoryContext, context_at, spec_plans
from runplan.engine.loop.leftovers import collect_leftovers

#: Claude Code and opencode read it there.
SKILL = ".claude/skills/run-plan/SKILL.md"


class Initialized(Accepted, frozen=True, kw_only=True):
    file: Path  #: that was written
    facts: Facts | None = None  #: that its settings fit; None of a skill
    specs: tuple[str, ...] = ()  #: the plans of other tools that were found
    unnamed: str = ""  #: why the tests that fail will have no names
    sandbox: str = ""  #: what the processes of a run see and may write


@operation
def init(caller: Caller, request: Initialize) -> Initialized:
    """Write a runplan.toml that fits the repository, or the skill; a file that exists stays."""
    with context_at(caller.cwd, caller.env, lambda _root, _env: Settings()) as context:
        root = context.root
        if request.skill:
            _create_file(root / SKILL, _read_shipped_skill())
            return Initialized(file=root / SKILL)
        facts = inspect_repository(context)
        file = repository_file(root) or root / "runplan.toml"
        _create_file(file, settings_text(facts))
        sandbox = check_sandbox(context).detail
    tools = facts.toolchain
    unnamed = foresee_unnamed(tools.tests, tools.junit, lambda name: read_bounded(root / name, largest=LARGEST))
    return Initialized(file=file, facts=facts, specs=tuple(spec_plans(root)), unnamed=unnamed, sandbox=sandbox)


def _create_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RefusedEarly(f"{path} exists and was not changed; move it away to have it written again") from None
    except OSError as error:
        raise RefusedEarly(f"{path}: cannot be written: {error.strerror}") from None


def _read_shipped_skill() -> str:
    package = Path(__file__).parents[2]
    skills = (folder / "config" / SKILL.removeprefix(".claude/") for folder in (package, package.parent))
    return next(path for path in skills if path.is_file()).read_text(encoding="utf-8")


class Collected(Accepted, frozen=True, kw_only=True):
    """What ended runs left behind: removed, or kept with the reason."""

    answers: tuple[Removed | Kept, ...]  #: worktrees and refs; a kept ref with the date and subject of its commit
    logs: tuple[Removed | Kept, ...]


@operation
def gc(caller: Caller, request: Collect) -> Collected:
    with caller.open() as context:
        answers, logs = collect_leftovers(context, dry_run=request.dry_run)
        return Collected(answers=_with_commits(context, answers), logs=tuple(logs))


def _with_commits(context: RepositoryContext, answers: list[Removed | Kept]) -> tuple[Removed | Kept, ...]:
    """The answers; each kept ref with the date and the subject of its commit."""
    tips = [answer.tip for answer in answers if isinstance(answer, Kept) and answer.tip]
    about = describe_commits(context, tips) if tips else {}
    return tuple(
        replace(answer, why=f"{answer.why}: {about[answer.tip]}") if isinstance(answer, Kept) and answer.tip else answer
        for answer in answers
    )
