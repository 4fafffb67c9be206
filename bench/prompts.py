"""Bytes of the prompts, in three parts: runplan's own text, the plan's text, and facts such as items, diff and results.

`python -m bench.prompts COMMIT` compares the prompts of a commit with those of this checkout.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import runplan
from runplan.adapters.agents.prompts import Brief, fix_prompt, implement_prompt, verify_prompt
from runplan.domain.checks.results import Results
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.events import Chosen, GateJudged, PhaseChosen
from runplan.domain.run.kinds import GateAnswer
from runplan.engine.steps.read_plan import choose_execution
from runplan.engine.steps.verify import final_items

if TYPE_CHECKING:
    from runplan.domain.plan.model import Plan

CONFIG = Path(runplan.__file__).parent.parent / "config"
ROLES = ("implement", "fix", "verify", "final")
COLUMNS = ("all", "own", "plan", "facts", "stable")
#: A phase without a text, whose criterion has a number: every part of runplan's own text is in its prompt.
NUMBERED = "### Acceptance Criteria\n\n- 1\n"

COMMAND = "python -m pytest -q"
WORKTREE = "/home/uma/.local/share/runplan/worktrees/shop-3f9c2a1b/lane-1"
OUTPUT = "".join(f"tests/test_rates.py::test_rate_{number} FAILED\n" for number in range(20))
DIFF = "diff --git a/src/shop/rates.py b/src/shop/rates.py\n--- a/src/shop/rates.py\n+++ b/src/shop/rates.py\n" + (
    "@@ -1,30 +1,60 @@\n" + "+    rate = table.find(country, at=moment)\n" * 60
)

_PHASE = """
## Phase {n} — {title}

Depends: {depends}
Touches: src/shop/{name}.py, src/shop/settings.py, tests/test_{name}.py, docs/{name}.md

The rates are constants today. They change several times a year, and an order keeps the rate of its day. Read them
from a table that is loaded once; do not add a dependency, and keep the functions of the shop pure.

### Work Items

- [ ] Add `load_{name}(path)` to `src/shop/{name}.py`: read the table, refuse a row without a date with its line number
- [ ] Replace the constants in `src/shop/{name}.py` by a look-up for country and day; the newest row applies
- [ ] Add the setting `{name}.table` to `src/shop/settings.py`, with the table of the package as its default
- [ ] Pass the table to `total()`, `invoice()` and `refund()` as an argument, and adapt every caller in `src/shop/`
- [ ] Write the tests `test_a_row_without_a_date_is_refused` and `test_an_order_keeps_the_rate_of_its_day`
- [ ] Describe the table, its columns and the setting in `docs/{name}.md`, with an example that can be copied

### Acceptance Criteria

- [ ] `python -m pytest tests/test_{name}.py` passes with at least 12 tests, and no other test of the shop changed
- [ ] An order of 2023-12-31 has the rate of that day when it is refunded (`test_an_order_keeps_the_rate_of_its_day`)
- [ ] A table with a wrong row stops the start of the shop with the name of the file and the number of the line
- [ ] `grep -rn "0.19" src/` prints nothing, and no module outside `src/shop/{name}.py` knows a rate
"""


def larger_plan() -> str:
    """Two phases with six work items and four criteria each."""
    phases = (("1", "Rates from a table", "rates", "none"), ("2", "Fees from a table", "fees", "1"))
    rows = "".join(f"| {n} — {title} | ⬚ | | |\n" for n, title, _, _ in phases)
    table = f"| Phase | Status | Commit | Notes |\n|---|---|---|---|\n{rows}"
    sections = "".join(_PHASE.format(n=n, title=title, name=name, depends=on) for n, title, name, on in phases)
    return f"---\ntitle: Rates\nstatus: active\n---\n# Rates\n\n## Progress Tracker\n\n{table}{sections}"


def a_brief(path: str, chosen: Chosen) -> Brief:
    return Brief(
        plan=path,
        chosen=chosen,
        worktree=WORKTREE,
        branch=f"runplan/rates/{chosen.phase}",
        test_command=COMMAND,
        baseline=[(COMMAND, Results(exit_code=0, runner="pytest", passed=212, failed=0, failures=frozenset()))],
    )


def write(role: str, brief: Brief, *, has_facts: bool = True) -> str:
    """The prompt of a role; without facts, what is left is runplan's own text."""
    template = (CONFIG / "prompts" / f"{role}.md").read_text(encoding="utf-8")
    diff = DIFF if has_facts else ""
    if role == "implement":
        return implement_prompt(template, brief)
    if role == "fix":
        failed = [("C2", "tests/test_rates.py has no such test")] if has_facts else []
        outputs = [(COMMAND, OUTPUT)] if has_facts else []
        why = "the checks failed: 20 regressed" if has_facts else ""
        return fix_prompt(template, brief, failed=failed, why=why, gates=outputs, diff=diff)
    gate = GateJudged(tree="5d2c" * 10, answer=GateAnswer.PASSED, code=0, line="212 passed, 0 failed", time=9)
    gates = [(COMMAND, gate)] if has_facts else []
    changed = ["src/shop/rates.py"] if has_facts else []
    return verify_prompt(template, brief, diff=diff, changed=changed, gates=gates)


def own_text(role: str) -> str:
    chosen = PhaseChosen(tip="", phase="", title="", text=NUMBERED, items=(), touches=())
    brief = Brief(plan="", chosen=chosen, worktree="", branch="", test_command="")
    return write(role, brief, has_facts=False).replace(NUMBERED, "")


def whole_plan(plan: Plan, text: str) -> PhaseChosen:
    context: Any = SimpleNamespace(plan_at=lambda _: (plan, text.encode()))
    attempt: Any = SimpleNamespace(built=SimpleNamespace(onto=""))
    items = final_items(attempt, context)
    return PhaseChosen(tip="", phase="all", title=plan.title, text=text, items=items, touches=())


def shared_bytes(first: bytes, second: bytes) -> int:
    """The bytes that both begin with."""
    return next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))


def measure() -> dict[str, dict[str, int]]:
    """The bytes of each column, by plan and role; `stable` is what the prompts of two phases begin with."""
    sizes = {}
    demo = (CONFIG / "demo/plans/DISCOUNT.md").read_text(encoding="utf-8")
    for name, text in (("demo", demo), ("6 items, 4 criteria", larger_plan())):
        plan = parse_plan(text.encode(), path="plans/rates.md")
        for role in ROLES:
            phases = [choose_execution(phase, tip="") for phase in plan.phases[:2]]
            if role == "final":
                phases = [whole_plan(plan, text), whole_plan(plan, text.replace("Phase 1", "Phase one"))]
            first, second = (write(role, a_brief(plan.path, chosen)).encode() for chosen in phases)
            own = len(own_text(role).encode())
            asked = len(phases[0].text.encode())
            stable = shared_bytes(first, second)
            parts = (len(first), own, asked, len(first) - own - asked, stable)
            sizes[f"{name}: {role}"] = dict(zip(COLUMNS, parts, strict=True))
    return sizes


def measure_commit(commit: str) -> dict[str, dict[str, int]]:
    """The same with the code and the templates of a commit."""
    with tempfile.TemporaryDirectory() as place:
        archive = subprocess.run(["git", "archive", commit, "runplan", "config"], check=True, capture_output=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(place, filter="data")
        env = os.environ | {"PYTHONPATH": place}
        ran = subprocess.run([sys.executable, __file__, "--json"], env=env, check=True, capture_output=True)
    return dict(json.loads(ran.stdout))


def main() -> None:
    after = measure()
    if sys.argv[1:] == ["--json"]:
        print(json.dumps(after))
        return
    before = measure_commit(sys.argv[1]) if len(sys.argv) > 1 else {}
    print(f"| prompt | {' | '.join(COLUMNS)} |\n|---{'|---:' * len(COLUMNS)}|")
    for name, sizes in after.items():
        cells = [f"{before[name][key]:,} → {size:,}" if before else f"{size:,}" for key, size in sizes.items()]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
