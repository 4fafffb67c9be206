"""The metrics are text that Prometheus reads, the same for the same facts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from runplan.report.metrics import Figures, Process, Sample, Used, render, samples
from tests.support.prometheus import read

FIGURES = Figures(
    repository="/home/uma/app",
    runs={("plans/x.md", "done"): 2, ("plans/x.md", "waiting"): 1},
    landed={"plans/x.md": 3},
    failed={("plans/x.md", "tests-failed"): 1},
    used=(
        Used(role="implement", agent="claude", ending="exited", count=4, input_tokens=10, output_tokens=5, usd=0.25),
        Used(role="gate", agent="", ending="exited", count=3, seconds=1.5),
    ),
    waiting={("plans/x.md", "approval"): 60.5},
    schedules={"plans/x.md": True, "plans/y.md": False},
    firings={("plans/x.md", "fired"): 7},
)
PROCESS = Process(version="0.1.0", uptime_s=12.5, rss_bytes=1024, cpu_s=0.5, threads=3, repositories=1)


def test_a_name_has_its_help_and_kind_once_above_all_its_numbers() -> None:
    text = render(
        [
            Sample("b", "gauge", "B", (("x", "2"),), 2),
            Sample("a", "counter", "A", (), 0.5),
            Sample("b", "gauge", "B", (("x", "1"),), 1),
        ]
    )
    assert text == '# HELP a A\n# TYPE a counter\na 0.5\n# HELP b B\n# TYPE b gauge\nb{x="1"} 1\nb{x="2"} 2\n'
    assert render([]) == ""


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (3.0, "3"),
        (1 / 3, "0.3333333333333333"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
        (1e300, "1e+300"),
        (-2, "-2"),
    ],
)
def test_numbers_are_written_as_the_format_has_them(value: float, written: str) -> None:
    assert render([Sample("a", "gauge", "A", (), value)]).splitlines()[-1] == f"a {written}"


def test_file_names_that_are_no_text_do_not_break_it() -> None:
    text = render([Sample("a", "gauge", "back\\slash\nline", (("plan", 'p"l\\a\nn\udcff'),), 1)])
    assert text.splitlines()[0] == "# HELP a back\\\\slash\\nline"
    assert text.splitlines()[2] == 'a{plan="p\\"l\\\\a\\nn�"} 1'
    text.encode("utf-8")


@given(st.text(), st.floats(allow_nan=False))
def test_whatever_a_label_says_is_read_back(label: str, value: float) -> None:
    ((name, labels, number),) = read(render([Sample("a", "gauge", "A", (("l", label),), value)]))
    assert (name, labels["l"], number) == ("a", label, value)


def test_a_repository_and_the_daemon_are_told_whole() -> None:
    text = render(samples([FIGURES], PROCESS))
    told = {(name, *labels.values()): value for name, labels, value in read(text)}
    app = "/home/uma/app"
    assert told["runplan_runs", app, "plans/x.md", "waiting"] == 1
    assert told["runplan_phases_landed_total", app, "plans/x.md"] == 3
    assert told["runplan_phases_failed_total", app, "plans/x.md", "tests-failed"] == 1
    assert told["runplan_dispatches_total", app, "implement", "claude", "exited"] == 4
    assert told["runplan_tokens_total", app, "implement", "claude", "exited", "output"] == 5
    assert told["runplan_usd_total", app, "implement", "claude", "exited"] == 0.25
    assert told["runplan_dispatch_seconds_total", app, "gate", "", "exited"] == 1.5
    assert told["runplan_waiting_seconds", app, "plans/x.md", "approval"] == 60.5
    assert told["runplan_schedules", app, "plans/x.md", "paused"] == 1
    assert told["runplan_schedules", app, "plans/y.md", "active"] == 1
    assert told["runplan_schedule_slots_total", app, "plans/x.md", "fired"] == 7
    assert told["runplan_daemon_info", "0.1.0"] == 1
    assert told[("runplan_daemon_uptime_seconds",)] == 12.5
    assert told[("runplan_daemon_threads",)] == 3
    assert ("runplan_tokens_total", app, "gate", "", "exited", "input") not in told


def test_several_repositories_share_names_and_counters_are_called_so() -> None:
    other = Figures(
        repository="/b", runs={("p", "done"): 1}, landed={}, failed={}, waiting={}, schedules={}, firings={}
    )
    text = render(samples([FIGURES, other], PROCESS))
    helped = re.findall(r"^# HELP (\S+)", text, re.MULTILINE)
    assert len(helped) == len(set(helped))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE))
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())
    told = read(text)
    assert len({(name, *labels.items()) for name, labels, _ in told}) == len(told)
    assert render(samples([other, FIGURES], PROCESS)) == text
