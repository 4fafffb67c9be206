"""The keys that an agent gets, and the dollar limit that its program gets."""

from pathlib import Path

import pytest

from runplan.adapters.agents.adapter import PROVIDERS, Task
from runplan.adapters.agents.clis import agent_of
from runplan.domain.run.kinds import Role
from runplan.domain.settings.schema import AgentTable

MANY = ("aider", "mini", "opencode")


def task(kind: str, where: Path, *, usd: float) -> Task:
    table = AgentTable(name=kind, kind=kind)
    return Task(table=table, caller={}, role=Role.FIX, phase="1", cycle=1, root=where, directory=where, usd=usd)


def names(kind: str, model: str) -> set[str]:
    given = agent_of(kind).list_variables(AgentTable(name=kind, kind=kind, model=model), {})
    return {name for name in given if name.endswith("_API_KEY")}


@pytest.mark.parametrize("kind", MANY)
def test_a_model_gets_the_key_of_its_provider_or_every_known_one(kind: str) -> None:
    for model in ("ollama/llama3", "ollama_chat/qwen3", "mistral/large"):  # an unknown one: `env` names its key
        assert (names(kind, model), agent_of(kind).keys_for(model)) == (set(), ())
    assert names(kind, "anthropic/claude-sonnet-4-5") == {"ANTHROPIC_API_KEY"}
    assert agent_of(kind).keys_for("anthropic/claude-sonnet-4-5") == ("ANTHROPIC_API_KEY",)
    known = {name for given in PROVIDERS.values() for name in given if name.endswith("_API_KEY")}
    own = {"OPENCODE_API_KEY"} if kind == "opencode" else set()
    assert names(kind, "") == names(kind, "gpt-5") == known | own
    assert set(agent_of(kind).keys_for("")) == known | own
    assert names("opencode", "opencode/zen") == {"OPENCODE_API_KEY"}


@pytest.mark.parametrize(("kind", "flag"), [("claude", "--max-budget-usd"), ("mini", "--cost-limit")])
def test_a_program_that_reports_dollars_at_its_end_gets_a_dollar_limit(kind: str, flag: str, tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Do it.\n")

    def argv(usd: float) -> tuple[str, ...]:
        return agent_of(kind).build_argv(task(kind, tmp_path, usd=usd))

    reported = argv(1.5)
    assert reported[reported.index(flag) + 1] == "1.5000"
    assert flag not in argv(0.0)
