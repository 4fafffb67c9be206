"""A form becomes the words of one command; no field becomes an option."""

import pytest

from runplan.domain.errors import UsageError
from runplan.interfaces.cli.main import parser_of
from runplan.interfaces.web.actions import Form, build_words

PLAN = "plans/X.md"
TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            Form(verb="approve", plan=PLAN, phase="2", tree=TREE),
            ["approve", PLAN, "2", f"--tree={TREE}", "--background"],
        ),
        (Form(verb="approve", plan=PLAN, tree=TREE, text="x"), ["approve", PLAN, f"--tree={TREE}", "--background"]),
        (Form(verb="reject", plan=PLAN, tree=TREE), ["reject", PLAN, f"--tree={TREE}", "--background"]),
        (
            Form(verb="start", plan=PLAN, words="auto every 'day at 9am'"),
            ["start", PLAN, "auto", "every", "day at 9am"],
        ),
        (Form(verb="retry", plan=PLAN, phase="4b"), ["retry", PLAN, "4b", "--background"]),
        (Form(verb="stop", plan=PLAN), ["stop", PLAN]),
    ],
)
def test_a_form_becomes_one_command(form: Form, words: list[str]) -> None:
    assert build_words(form) == words


@pytest.mark.parametrize("text", ["use sqlite", "-m", "--tree=other", "-- x", "=", "- a\n - b", "-h"])
def test_a_text_stays_a_text(text: str) -> None:
    """As the command line reads it."""
    _, *words = build_words(Form(verb="reject", plan=PLAN, phase="1", tree=TREE, text=text))
    rejected = parser_of("reject").parse_intermixed_args(words)
    assert (rejected.why, rejected.tree, rejected.plan, rejected.phase) == (text, TREE, PLAN, "1")
    _, *words = build_words(Form(verb="answer", id="r1a2b3c4d.2", text=text))
    answered = parser_of("answer").parse_intermixed_args(words)
    assert (answered.id, answered.text) == ("r1a2b3c4d.2", [f" {text}"])


@pytest.mark.parametrize(
    "form",
    [
        Form(verb="undo", plan=PLAN, phase="1"),
        Form(verb="", plan=PLAN),
        Form(verb="approve", plan=PLAN),
        Form(verb="approve", plan="", tree=TREE),
        Form(verb="approve", plan="--via=person", tree=TREE),
        Form(verb="approve", plan=PLAN, phase="-m", tree=TREE),
        Form(verb="approve", plan=PLAN, tree="--via"),
        Form(verb="approve", plan="plans/X\0.md", tree=TREE),
        Form(verb="stop"),
        Form(verb="answer", id="-h", text="x"),
        Form(verb="answer", id="r1.1", text="  "),
        Form(verb="answer", id="r1.1", text="--"),
        Form(verb="reject", plan=PLAN, tree=TREE, text=" --"),
        Form(verb="start", plan=PLAN, words="auto --foreground"),
        Form(verb="start", plan=PLAN, words="-- finish"),
        Form(verb="start", plan=PLAN, words="'unfinished"),
        Form(verb="start", plan=PLAN, words="auto ''"),
    ],
)
def test_other_fields_are_refused(form: Form) -> None:
    with pytest.raises(UsageError):
        build_words(form)
