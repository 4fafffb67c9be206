"""The lines of a phase that set its agents, model, effort and tests."""

import pytest
from msgspec.structs import replace

from runplan.domain.errors import RefusedEarly
from runplan.domain.plan.marks import PhaseSettings
from runplan.domain.plan.model import parse_plan
from runplan.domain.plan.proposal import summarize
from runplan.domain.run.attempt_parts import Proof
from runplan.domain.run.events import BaselineKnown, FinalVerificationDue, GateJudged
from runplan.domain.run.kinds import GateAnswer
from runplan.domain.settings.schema import AgentsSettings, AgentTable, CheckSettings, Settings, set_for_phase
from runplan.engine.loop.preflight import list_wanted_agents

SETTINGS = Settings(
    agents=AgentsSettings(implementer="claude", verifiers=("codex", "gemini")),
    tests=CheckSettings(command="make test", summary="ok", rerun="make again {tests}"),
)


def read_own(body: str) -> PhaseSettings:
    plan = parse_plan(f"# X\n\n## Phase 1: A\n\n**Status:** todo\n\n{body}\n".encode(), path="plans/X.md")
    return plan.phases[0].own


@pytest.mark.parametrize(
    ("body", "own"),
    [
        ("Agent: `codex`\n- **Model:** `gpt-5`.", PhaseSettings(agent="codex", model="gpt-5")),
        ("Tests: `make a && make b`\nTests: `other`", PhaseSettings(tests="make a && make b")),
        ("Verifier: `claude`\n\nEffort: `high`\n", PhaseSettings(verifier="claude", effort="high")),
        ("Agent: codex\n\nTests: `a.py` passes", PhaseSettings()),
        ("### Design\n\nAgent: `codex`", PhaseSettings()),
        ("```\nAgent: `codex`\n```", PhaseSettings()),
    ],
)
def test_a_line_with_a_value_in_backticks_sets_it(body: str, own: PhaseSettings) -> None:
    assert read_own(body) == own


def test_a_proposal_names_what_its_phases_set() -> None:
    text = "# X\n\n## Phase 1: A\n\n**Status:** todo\n\nTouches: a\nTests: `true`\n"
    assert summarize(text, path="plans/X.md").permissions == ("phase 1 sets its tests: true",)


def test_a_phase_replaces_implementer_verifiers_and_tests() -> None:
    own = PhaseSettings(agent="codex", verifier="claude", tests="make a")
    changed = set_for_phase(SETTINGS, own, is_last=False)
    assert (changed.agents.implementer, changed.agents.judges) == ("codex", ("claude",))
    assert changed.tests == CheckSettings(command="make a"), "summary and rerun belong to the command that is replaced"
    assert set_for_phase(SETTINGS, own, is_last=True).tests.command == "make test"
    assert set_for_phase(Settings(), own, is_last=False).tests.command == ""
    assert set_for_phase(SETTINGS, PhaseSettings(), is_last=False) == SETTINGS


def test_the_agents_that_a_phase_wants_are_known_and_take_its_effort() -> None:
    own = AgentTable(name="claude", kind="claude", model="sonnet", effort="high")
    agents = replace(SETTINGS.agents, tables={"claude": own})
    wanted = list_wanted_agents(agents, PhaseSettings(model="opus", verifier="gemini"))
    assert wanted == [replace(own, model="opus"), AgentTable(name="gemini", kind="gemini")]
    assert list_wanted_agents(agents, PhaseSettings()) == []
    with pytest.raises(RefusedEarly, match="there is no agent nobody; there are: aider, claude, "):
        list_wanted_agents(agents, PhaseSettings(agent="nobody"))
    with pytest.raises(RefusedEarly, match="there is no agent script"):  # it needs a table
        list_wanted_agents(agents, PhaseSettings(verifier="script"))
    with pytest.raises(RefusedEarly, match="gemini has no setting for effort"):
        list_wanted_agents(agents, PhaseSettings(agent="gemini", effort="high"))


@pytest.mark.parametrize("is_narrowed", [True, False])
def test_all_tests_run_before_a_plan_ends(is_narrowed: bool) -> None:
    gate = GateJudged(name="tests", tree="t", time=1, code=0, answer=GateAnswer.PASSED, line="")
    proof = Proof(baselines={"tests": BaselineKnown(key="", tree="b", results="", name="tests")}, gates=(gate,))
    after = proof.record(FinalVerificationDue(tree="t", is_narrowed=is_narrowed))
    assert (not after.gates, not after.baselines) == (is_narrowed, is_narrowed)
