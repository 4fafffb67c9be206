"""The HTML report shows the Markdown report; nothing in a report or a diff becomes markup."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from msgspec.structs import replace

from runplan.engine.report.html import LONGEST_DIFF, render_inline, render_page
from runplan.engine.report.text import prepend_sections
from tests.unit.test_report import COMMITS, FAILED, HOSTILE, PHASE, PROOF, VERDICT, failure_section, phase_section

REPORT = prepend_sections(None, plan_title="Parser", sections=[failure_section(FAILED), phase_section(PHASE)])


class Reader(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = ("class", "lang", "data-label", "tabindex", *(("href", "rel") if tag == "a" else ()))
        assert tag == "meta" or all(name in known for name, _ in attrs), attrs
        assert (dict(attrs).get("href") or "https://").startswith(("http://", "https://")), attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_every_part_of_the_report() -> None:
    read = Reader(render_page(REPORT, diffs={}))
    assert read.open == []
    assert (read.tags.count("section"), read.tags.count("table"), read.tags.count("details")) == (2, 1, 0)
    for part in (
        *("Plan Report — Parser", "Phase — 4a Read tables", "Pipes a|b are kept", "see x|y", "1 failed, 11 passed"),
    ):
        assert part in read.text
    assert "runplan: run" not in read.text, "marks are not shown"


def test_a_commit_with_a_diff_is_folded() -> None:
    made = render_page(REPORT, diffs={"abc1234": "--- a\n+<b>&amp;\n"})
    assert "<details><summary><code>abc1234</code> Read rows</summary>" in made
    assert '<span class="add">+&lt;b&gt;&amp;amp;</span>' in made
    assert made.count("<details>") == 1


def brightness(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    digits = colour.lstrip("#")
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["text", "add", "del"])
@pytest.mark.parametrize("background", ["page", "block"])
def test_text_has_a_contrast_of_at_least_4_5(theme: str, name: str, background: str) -> None:
    light, dark = re.findall(r":root \{ (.*?) \}", render_page(REPORT, diffs={}))
    values = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", dark if theme == "dark" else light))
    low, high = sorted((brightness(values[name]), brightness(values[background])))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_every_colour_of_text_comes_from_the_theme() -> None:
    style = render_page(REPORT, diffs={}).partition("<style>")[2].partition("</style>")[0]
    rules = [line for line in style.splitlines() if ":root" not in line]
    assert not any("#" in rule for rule in rules), rules


def test_a_cell_names_its_column_on_a_narrow_screen() -> None:
    made = render_page("| A | B |\n|---|---|\n| 1 | 2 |\n| 3 | 4 | 5 |\n", diffs={})
    assert '<tr><th>A</th><th>B</th></tr>\n<tr><td data-label="A">1</td><td data-label="B">2</td></tr>' in made
    assert '<td data-label="B">4</td><td>5</td></tr>' in made
    assert "td::before { content: attr(data-label)" in made


def test_a_long_diff_is_cut_and_names_the_command() -> None:
    made = render_page(REPORT, diffs={"abc1234": "x" * (LONGEST_DIFF + 1)})
    assert "[…] the whole diff: git show abc1234" in made
    assert len(made) < LONGEST_DIFF + 10_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("keep `a < b` and ``c`d``", "keep <code>a &lt; b</code> and <code>c`d</code>"),
        ("**read `x` twice** or *never*", "<strong>read <code>x</code> twice</strong> or <em>never</em>"),
        ("_so_ snake_case_name, 2 * 3 * 4, src/**/*.py", "<em>so</em> snake_case_name, 2 * 3 * 4, src/**/*.py"),
        ("[a *b*](https://a.example/?b&c)", '<a href="https://a.example/?b&amp;c" rel="noreferrer">a <em>b</em></a>'),
        ("[x](javascript:alert) ![y](/z) <b>", "[x](javascript:alert) ![y](/z) &lt;b&gt;"),
        ('[x](http://a"onclick=b)', '<a href="http://a&quot;onclick=b" rel="noreferrer">x</a>'),
    ],
)
def test_a_line_has_code_emphasis_and_links_to_websites_alone(text: str, shown: str) -> None:
    assert render_inline(text) == shown
    assert render_inline(text, has_links=False) == re.sub("</?a[^>]*>", "", shown)


@pytest.mark.parametrize("text", ["a\\|b", "a|b", "\\", "`a|b`"])
def test_a_cell_reads_as_it_was_written(text: str) -> None:
    proof = replace(PROOF, verdicts=(replace(VERDICT, items=(("W1", True, text),)),))
    shown = f'<td data-label="Evidence">{text}</td>'.replace("`a|b`", "<code>a|b</code>")
    assert shown in render_page(phase_section(replace(PHASE, proof=proof)), diffs={})


@given(HOSTILE)
def test_no_text_of_an_agent_becomes_markup(text: str) -> None:
    verdict = replace(VERDICT, items=(("W1", True, f"<script>{text}"),))
    read = replace(PHASE.chosen, title=text, items=(("W1", text),))
    subjects = dict.fromkeys(COMMITS, f'<img src="x">{text}')
    section = phase_section(replace(PHASE, chosen=read, proof=replace(PROOF, verdicts=(verdict,))), subjects=subjects)
    failure = failure_section(replace(FAILED, detail=f"{text}</pre><script>"))
    seen = Reader(render_page(f"{text}\n{section}{failure}", diffs={"abc1234": f"+</pre>{text}<script>"}))
    assert not {"script", "img", "link", "b"} & set(seen.tags)
    assert seen.open == []
