"""The metrics are text that Prometheus reads, the same for the same facts."""

from hypothesis import given, strategies as st

from runplan.engine.report.metrics import Sample, render_samples
from tests.support.builders import read


def test_a_name_has_its_help_and_kind_once_above_all_its_numbers() -> None:
    text = render_samples(
        [Sample("b", "B", (("x", "2"),), 2), Sample("a_total", "A", (), 0.5), Sample("b", "B", (("x", "1"),), 1)]
    )
    assert (
        text
        == '# HELP a_total A\n# TYPE a_total counter\na_total 0.5\n# HELP b B\n# TYPE b gauge\nb{x="1"} 1\nb{x="2"} 2\n'
    )
    assert render_samples([]) == ""


def test_file_names_that_are_not_utf8_are_written() -> None:
    text = render_samples([Sample("a", "A", (("plan", 'p"l\\a\nn\udcff'),), 1)])
    assert text.splitlines()[2] == 'a{plan="p\\"l\\\\a\\nn�"} 1'
    text.encode("utf-8")


@given(st.text(), st.floats(allow_nan=False))
def test_any_label_value_is_read_back(label: str, value: float) -> None:
    ((name, labels, number),) = read(render_samples([Sample("a", "A", (("l", label),), value)]))
    assert (name, labels["l"], number) == ("a", label, value)
