"""A form becomes one request, bound to what the page has shown."""

import pytest

from runplan.app.operations.table import OPERATIONS
from runplan.domain.decoding import convert
from runplan.domain.errors import UsageError
from runplan.domain.settings.options import Options
from runplan.interfaces.web.actions import Form, read_request

PLAN = "plans/X.md"
TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
BY_DAEMON = {"where": "daemon"}


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        (
            Form(verb="approve", plan=PLAN, phase="2", tree=TREE, text="x"),
            {"plan": PLAN, "phase": "2", "tree": TREE, **BY_DAEMON},
        ),
        (
            Form(verb="reject", plan=PLAN, tree=TREE, text=" --tree=other "),
            {"plan": PLAN, "phase": "", "tree": TREE, "why": "--tree=other", **BY_DAEMON},
        ),
        (Form(verb="answer", id="r1.2", text="-m"), {"id": "r1.2", "text": "-m", **BY_DAEMON}),
        (
            Form(verb="start", plan=PLAN, words="auto every 'day at 9am'"),
            {"plan": PLAN, "options": Options(auto=True, every="day at 9am")},
        ),
        (Form(verb="retry", plan=PLAN, phase="4b"), {"plan": PLAN, "phase": "4b", **BY_DAEMON}),
        (Form(verb="stop", plan=PLAN), {"plan": PLAN}),
    ],
)
def test_a_form_becomes_one_request(form: Form, fields: dict[str, object]) -> None:
    assert read_request(form) == fields
    convert(fields, OPERATIONS[form.verb][1])


@pytest.mark.parametrize(
    "form",
    [
        Form(verb="undo", plan=PLAN, phase="1"),
        Form(verb="", plan=PLAN),
        Form(verb="approve", plan=PLAN),
        Form(verb="stop"),
        Form(verb="answer", id="", text="x"),
        Form(verb="answer", id="r1.1", text="  "),
        Form(verb="start", plan=PLAN, words="auto every"),
        Form(verb="start", plan=PLAN, words="'unfinished"),
    ],
)
def test_other_fields_are_refused(form: Form) -> None:
    with pytest.raises(UsageError):
        read_request(form)
