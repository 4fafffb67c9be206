"""The drawings: where things are placed, and that foreign text stays text."""

import re
import xml.etree.ElementTree as ET

from hypothesis import given, strategies as st

from runplan.app.views.plan_page import Dispatch
from runplan.app.views.status import PhaseView
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.events import DispatchEnded, DispatchStarted
from runplan.domain.run.kinds import Role
from runplan.domain.standing.phases import PhaseState
from runplan.interfaces.web.drawing import (
    NODE_HEIGHT,
    NODE_WIDTH,
    STATES,
    TICK_GAP,
    Scale,
    draw_graph,
    draw_timeline,
    find_layers,
)

HOSTILE = '</title><script>alert(1)</script>" onload="x\x1b[31m\u202e\x00&amp;'


def a_phase(id_: str, *depends: str, title: str = "x", state: str = "todo", words: str = "") -> PhaseView:
    return PhaseView(id_, title, "todo", None, depends, state=PhaseState(state), words=words or state)


def phases(**depends: str) -> list[PhaseView]:
    return [a_phase(id_, *on) for id_, on in depends.items()]


def a_step(
    role: Role = Role.GATE, *, id_: str = "d", agent: str = "", phase: str = "1", seconds: float = 9, code: int = 0
) -> Dispatch:
    started = DispatchStarted(id=id_, role=role, agent=agent, cycle=1, phase=phase, at="2026-03-01T12:00:00Z")
    ended = DispatchEnded(id=id_, role=role, ending=Ending.EXITED, code=code, seconds=seconds)
    return Dispatch(started=started, run="r", ended=ended)


def test_a_phase_is_right_of_all_that_it_depends_on() -> None:
    assert find_layers(phases(a="", b="a", c="a", d="bc", e="a"))[0] == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 1}
    assert find_layers(phases(b="a", a=""))[0] == {"a": 0, "b": 1}, "whatever their order"
    assert find_layers(phases(a="x"))[0] == {"a": 0}, "an unknown phase does not count"


def test_a_cycle_has_an_end() -> None:
    layers, arrows = find_layers(phases(a="b", b="a", c="c"))
    assert set(layers) == {"a", "b", "c"}
    assert arrows["c"] == []


def test_dependencies_that_follow_from_others_have_no_arrow() -> None:
    drawn = phases(a="", b="a", c="ab", d="abc")
    assert find_layers(drawn)[1] == {"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}
    shown = [element.get("class") for element in ET.fromstring(draw_graph(drawn, title="t")).iter("path")]
    assert shown == ["head", "edge", "edge", "edge"]


@given(st.lists(st.sets(st.integers(0, 24), max_size=4), min_size=1, max_size=25))
def test_no_two_phases_overlap(depends: list[set[int]]) -> None:
    drawn = [a_phase(str(number), *map(str, on)) for number, on in enumerate(depends)]
    graph = str(draw_graph(drawn, title="t"))
    places = [(int(x), int(y)) for x, y in re.findall(r"translate\((\d+) (\d+)\)", graph)]
    assert len(places) == len(drawn)
    width, height = map(int, re.findall(r'width="(\d+)" height="(\d+)"', graph)[0])
    assert all(x + NODE_WIDTH < width and y + NODE_HEIGHT < height for x, y in places)
    for number, (x, y) in enumerate(places):
        for other_x, other_y in places[number + 1 :]:
            assert abs(x - other_x) >= NODE_WIDTH or abs(y - other_y) >= NODE_HEIGHT


def test_every_drawing_is_well_formed_and_holds_foreign_text_as_text() -> None:
    hostile = [a_phase(HOSTILE, title=HOSTILE, state=state, words=HOSTILE) for state in STATES]
    graph = draw_graph(hostile, title=HOSTILE, selected=HOSTILE, address_of=lambda phase: f"/plan?{phase}")
    timeline = draw_timeline([a_step(agent=HOSTILE, phase=HOSTILE)], {HOSTILE: HOSTILE}, title=HOSTILE)
    for drawing in (graph, timeline):
        root = ET.fromstring(drawing)
        assert {element.tag for element in root.iter()}.isdisjoint({"script"})
        assert not any(name.startswith("on") or name == "style" for element in root.iter() for name in element.attrib)
        assert "\x1b" not in drawing
        assert "\u202e" not in drawing


def test_a_state_has_a_sign_and_a_word_besides_its_colour() -> None:
    drawn = ET.fromstring(draw_graph([*phases(a=""), a_phase("b", state="done")], title="t"))
    texts = [element.text for element in drawn.iter("text")]
    assert {"○ a", "todo", "✓ b", "done"} <= set(texts)


def test_a_title_is_cut_to_two_lines_of_the_width_of_its_phase() -> None:
    graph = draw_graph(
        [a_phase("1", title="one two three four five six seven eight"), a_phase("2", title="字" * 30)], title="t"
    )
    texts = [element.text for element in ET.fromstring(graph).iter("text") if element.get("x") == "10"]
    assert texts == ["○ 1", "one two three four", "five six seven…", "○ 2", "字" * 9 + "…", "字" * 9 + "…"]


def test_a_time_without_work_is_cut_to_a_break() -> None:
    scale = Scale([(0, 50), (51, 100), (90_000, 90_201)], 311)
    assert list(scale.spans) == [(0, 100), (90_000, 90_201)]
    places = [round(scale.place(moment), 6) for moment in (0, 100, 90_000, 90_201)]
    assert places == [0, 100, 110, 311]


def test_the_axis_has_the_start_of_each_time_at_work_and_round_times_where_there_is_room() -> None:
    assert Scale([(7, 107), (90_003, 90_103)], 410).ticks == [7, 60, 90_003, 90_060]
    assert Scale([(7, 17)], TICK_GAP).ticks == [7]


def timeline_of(*steps: Dispatch) -> ET.Element:
    return ET.fromstring(draw_timeline(steps, {"1": "One"}, title="t"))


def test_the_legend_names_each_role_once_and_what_failed() -> None:
    drawn = timeline_of(a_step(), a_step(), a_step(Role.VERIFY), a_step(code=1))
    assert [element.text for element in drawn.iter("text")][-3:] == ["✕ failed", "gate", "verify"]


def test_the_processes_of_a_phase_follow_each_other() -> None:
    """Their recorded starts are whole seconds."""
    drawn = timeline_of(a_step(seconds=5, code=1), a_step(Role.VERIFY, id_="d2", agent="v", seconds=1))
    first, second = drawn.findall("a")
    ends = float(first[1].attrib["x"]) + float(first[1].attrib["width"])
    assert abs(ends - float(second[1].attrib["x"])) < 1
    assert (first.get("class"), second.get("class"), second.get("href")) == ("failed", "scheduled", "#log-d2")
    assert (first[0].text, second[0].text) == ("gate by command, 5s, exit 1", "verify by v, 1s, ok")
    assert "1 One" in [element.text for element in drawn.iter("title")]


def test_processes_without_a_length_can_be_drawn() -> None:
    assert draw_timeline([a_step(seconds=0), a_step(seconds=0)], {}, title="t")
    assert (draw_timeline([], {}, title="t"), draw_graph([], title="t")) == ("", "")
