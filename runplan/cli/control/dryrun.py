"""What a start would do, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan import names
from runplan.agents import prompts
from runplan.engine.repository import prompt_template
from runplan.plan import tracker as target
from runplan.plan.model import Status, parse

if TYPE_CHECKING:
    from runplan.engine.context import RepositoryContext
    from runplan.plan.model import Phase, Plan
    from runplan.run.events import RunStarted


def account(at: RepositoryContext, started: RunStarted) -> str:
    text = at.repository.git.blob(at.tip(), started.plan) or b""
    plan = parse(text, path=started.plan)
    agents = at.settings.agents
    lines = [
        f"plan        {started.plan} ({plan.title})",
        f"target      {started.target}, landing by {started.landing}",
        f"pauses      {'none' if started.auto else 'before each landing'}",
        f"agents      {agents.implementer} implements, {agents.verifier} verifies",
        f"tests       {started.test_command or 'none'}",
        "",
    ]
    lines += [_phase(at, started, phase) for phase in _due(plan, started)]
    return "\n".join([*lines, "", "Nothing was changed."])


def _due(plan: Plan, started: RunStarted) -> list[Phase]:
    if started.mode == "finish":
        return [phase for phase in plan.phases if phase.status is not Status.DONE]
    choice = target.choose(plan, wanted=started.wanted or None)
    return [choice.phase] if isinstance(choice, target.Next) else []


def _phase(at: RepositoryContext, started: RunStarted, phase: Phase) -> str:
    branch = names.branch(at.settings.run.branch_prefix, started.slug, phase.id)
    brief = prompts.Brief(
        plan=started.plan,
        phase=phase.id,
        title=phase.title,
        text=phase.text,
        items=tuple((item.id, item.text) for item in phase.items),
        touches=phase.touches,
        worktree="",
        branch=branch,
        test_command=started.test_command,
    )
    size = len(prompts.implement_prompt(prompt_template("implement", at), brief).encode())
    items = "1 item" if len(phase.items) == 1 else f"{len(phase.items)} items"
    return f"phase {phase.id:<6}{phase.title}\n  branch {branch}; prompt of {size} bytes with {items}"
