"""The drawings: where things are placed, and that foreign text stays text."""

import re
import xml.etree.ElementTree as ET

from hypothesis import given, strategies as st
from msgspec.structs import replace

from runplan.app.views.status import PhaseView
from runplan.domain.standing.phases import PhaseState
from runplan.interfaces.web.drawing import (
    BREAK_WIDTH,
    NODE_HEIGHT,
    NODE_WIDTH,
    STATES,
    TICK_GAP,
    Bar,
    Scale,
    draw_columns,
    draw_graph,
    draw_timeline,
    drop_implied,
    find_layers,
    place_phases,
    wrap_text,
)

HOSTILE = '</title><script>alert(1)</script>" onload="x\x1b[31m\u202e\x00&amp;'


def a_phase(
    id_: str, *depends: str, title: str = "x", state: PhaseState = PhaseState.TODO, words: str = ""
) -> PhaseView:
    return PhaseView(id_, title, "todo", None, depends, state=state, words=words or state)


def phases(**depends: str) -> list[PhaseView]:
    return [a_phase(id_, *on) for id_, on in depends.items()]


def test_a_phase_is_right_of_all_that_it_depends_on() -> None:
    assert find_layers(phases(a="", b="a", c="a", d="bc", e="a")) == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 1}
    assert find_layers(phases(b="a", a="")) == {"a": 0, "b": 1}, "whatever their order"
    assert find_layers(phases(a="x")) == {"a": 0}, "an unknown phase does not count"


def test_a_cycle_has_an_end() -> None:
    layers = find_layers(phases(a="b", b="a", c="c"))
    assert set(layers) == {"a", "b", "c"}
    assert drop_implied(phases(a="b", b="a", c="c"))["c"] == ()


def test_dependencies_that_follow_from_others_have_no_arrow() -> None:
    assert drop_implied(phases(a="", b="a", c="ab", d="abc")) == {"a": (), "b": ("a",), "c": ("b",), "d": ("c",)}


@given(st.lists(st.sets(st.integers(0, 24), max_size=4), min_size=1, max_size=25))
def test_no_two_phases_overlap(depends: list[set[int]]) -> None:
    drawn = [a_phase(str(number), *map(str, on)) for number, on in enumerate(depends)]
    places = list(place_phases(drawn).values())
    assert len(places) == len(drawn)
    for number, first in enumerate(places):
        for second in places[number + 1 :]:
            assert abs(first.x - second.x) >= NODE_WIDTH or abs(first.y - second.y) >= NODE_HEIGHT


def test_every_drawing_is_well_formed_and_holds_foreign_text_as_text() -> None:
    hostile = [a_phase(HOSTILE, title=HOSTILE, state=PhaseState(state), words=HOSTILE) for state in STATES]
    graph = draw_graph(hostile, title=HOSTILE, selected=HOSTILE, address_of=lambda phase: f"/plan?{phase}")
    timeline = draw_timeline([Bar(row=HOSTILE, start_s=0, seconds=9, kind=HOSTILE, words=HOSTILE)], title=HOSTILE)
    chart = draw_columns([(HOSTILE, 1, HOSTILE)], title=HOSTILE, key="k")
    for drawing in (graph, timeline, chart):
        root = ET.fromstring(drawing)
        assert {element.tag for element in root.iter()}.isdisjoint({"script"})
        assert not any(name.startswith("on") or name == "style" for element in root.iter() for name in element.attrib)
        assert "\x1b" not in drawing
        assert "\u202e" not in drawing


def test_a_state_has_a_sign_and_a_word_besides_its_colour() -> None:
    drawn = ET.fromstring(draw_graph([*phases(a=""), a_phase("b", state=PhaseState.DONE)], title="t"))
    texts = [element.text for element in drawn.iter("text")]
    assert {"○ a", "todo", "✓ b", "done"} <= set(texts)


def test_text_is_wrapped_by_its_width() -> None:
    assert wrap_text("one two three four", 9, 2) == ["one two", "three fo…"]
    assert wrap_text("averylongwordwithoutspace", 8, 2) == ["averylon", "gwordwi…"]
    assert wrap_text("", 8, 2) == []


def bar(start_s: float, seconds: float) -> Bar:
    return Bar(row="1", start_s=start_s, seconds=seconds, kind="gate", words="")


def test_a_time_without_work_is_cut_to_a_break() -> None:
    scale = Scale([bar(0, 50), bar(51, 49), bar(90_000, 100)], 400 + BREAK_WIDTH)
    assert list(scale.spans) == [(0, 100), (90_000, 90_100)]
    places = [scale.place(moment) for moment in (0, 100, 90_000, 90_100)]
    assert places == [0, 200, 200 + BREAK_WIDTH, 400 + BREAK_WIDTH]


def test_the_axis_has_the_start_of_each_time_at_work_and_round_times_where_there_is_room() -> None:
    busy = Scale([bar(7, 100), bar(90_003, 100)], 400 + BREAK_WIDTH)
    assert busy.list_ticks() == [7, 60, 90_003, 90_060]
    assert Scale([bar(7, 10)], TICK_GAP).list_ticks() == [7]


def test_the_legend_names_each_role_once_and_what_failed() -> None:
    bars = [bar(0, 1), bar(1, 1), replace(bar(2, 1), kind="verify"), replace(bar(3, 1), is_bad=True)]
    texts = [element.text for element in ET.fromstring(draw_timeline(bars, title="t")).iter() if element.tag == "text"]
    assert texts[-3:] == ["✕ failed", "gate", "verify"]


def test_processes_without_a_length_can_be_drawn() -> None:
    assert draw_timeline([bar(5, 0), bar(5, 0)], title="t")
    assert (draw_timeline([], title="t"), draw_graph([], title="t"), draw_columns([], title="t", key="k")) == (
        "",
        "",
        "",
    )


def test_an_axis_ends_at_a_round_number() -> None:
    def end(value: float) -> str:
        chart = draw_columns([("", value, "")], title="t", key="k")
        return [str(words) for words in re.findall(r'text-anchor="end">([^<]+)<', chart)][2]

    assert [end(value) for value in (0, 0.3, 1, 3, 51, 200_001)] == ["1", "0.5", "1", "5", "100", "500k"]
