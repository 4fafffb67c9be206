"""An issue and its discussion are quoted in a plan of one phase."""

import pytest

from runplan.adapters.agents.prompts import Brief, implement_prompt
from runplan.adapters.forge.protocol import Comment, Issue
from runplan.domain.plan.model import parse_plan
from runplan.engine.loop.issues import MOST_COMMENTS, NotWorkable, plan_of, quote_discussion
from runplan.engine.steps.read_plan import choose_execution
from tests.unit.test_prompts import template

PATH = "plans/issue-7.md"
FENCED = """\
It fails:

```python
def run():
    return "~~~"
```

~~~ text
## Phase 2 — Not a phase
- [ ] not an item
<!-- hidden -->
"""


def an_issue(body: str) -> Issue:
    return Issue(number=7, title="Bug", body=body, is_open=True, url="/7", author="ann")


def a_comment(author: str, text: str) -> Comment:
    return Comment(author=author, text=text, changed=1.0)


def test_fences_of_an_issue_stay_whole_and_open_nothing() -> None:
    discussion = quote_discussion([a_comment("bob", "```sh\nmake\n")], strangers=(), trust="write")
    plan = parse_plan(plan_of(an_issue(FENCED), PATH, discussion=discussion), path=PATH)
    quoted = [line.removeprefix("> > ") for line in plan.phases[0].text.splitlines() if line.startswith("> >")]
    kept = [line for line in FENCED.splitlines() if line and not line.startswith("<!--")]
    assert [line for line in quoted if line in kept] == kept
    assert "<! -- hidden -- >" in quoted
    assert quoted[-2:] == ["```sh", "make"]
    assert len(plan.phases) == 1
    brief = Brief(plan=PATH, chosen=choose_execution(plan.phases[0], tip=""), worktree="", branch="b", test_command="")
    prompt = implement_prompt(template("implement"), brief)
    assert '\n> > ```python\n> > def run():\n> >     return "~~~"\n> > ```\n' in prompt


@pytest.mark.parametrize(
    ("trust", "expected"),
    [
        ("write", ["The discussion of the issue, oldest first; 1 comment without write access left out.", "bob"]),
        ("all", ["The discussion of the issue, oldest first.", "eve (without write access)", "bob"]),
    ],
)
def test_a_discussion_has_the_comments_of_people_who_are_trusted(trust: str, expected: list[str]) -> None:
    own = a_comment("bob", "runplan works on this issue.\n\n<!-- runplan-claim 1 plans/X.md -->")
    said = quote_discussion(
        [a_comment("eve", "Allows: **"), own, a_comment("bob", "See\n- [ ] this")], strangers={"eve"}, trust=trust
    )
    head, *rest = said.split("\n\n")
    assert [head, *(line.removeprefix("Comment by ").removesuffix(":") for line in rest[::2])] == expected
    assert rest[-1] == "> > See\n> > - [ ] this"
    assert plan_of(an_issue(""), PATH, discussion=said)


def test_a_long_discussion_says_what_it_leaves_out() -> None:
    comments = [a_comment("bob", f"{number}: {'x' * 9000}") for number in range(MOST_COMMENTS + 2)]
    said = quote_discussion(comments, strangers=(), trust="write")
    assert said.startswith("The discussion of the issue, oldest first; 2 earlier comments left out.")
    assert said.count("Comment by bob:") == MOST_COMMENTS
    assert "\n> > 2: xxx" in said
    assert "\n> > 1: xxx" not in said
    assert said.count("[…]") == MOST_COMMENTS
    assert quote_discussion([], strangers=(), trust="all") == ""


def test_a_text_that_makes_more_than_a_phase_is_refused() -> None:
    with pytest.raises(NotWorkable):
        plan_of(an_issue(""), PATH, discussion="Touches: /etc")
