"""The words of agents reach journal and terminal without terminal sequences, and with a bounded length."""

import json
import shlex

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from runplan.domain.run.dispatch import Ending
from runplan.domain.run.events import DispatchEnded, GuardFound, HandedOver, VerdictGiven, WorkRefused, WorkTaken
from runplan.domain.run.kinds import Reason, Role
from runplan.domain.run.recorded import sanitize_event
from runplan.domain.text import LONGEST, bounded, command, escaped, inert, plain, visible


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("as it is, ünïcode 日本 too", "as it is, ünïcode 日本 too"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b]0;owned\x07\x1b[31mred\x1b[2J \0nul", "red nul"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("over\rwritten\r\n", "over\nwritten\n"),
        ("back\b\b\x7fspace\x1b", "backspace"),
        ("\x1b]0;never ended", "0;never ended"),
        ("abc\u202edef\u2069", "abcdef"),
        ("\x1bcreset\x1b(B", "reset"),
    ],
)
def test_terminal_control_sequences_are_removed(text: str, cleaned: str) -> None:
    assert plain(text) == cleaned


@settings(deadline=None, database=None)
@given(st.text(alphabet=st.sampled_from("\x1b[]0;m\x07\\\x9b\x9d\x9c\0\r\nab"), max_size=40))
def test_no_text_keeps_a_control_character(text: str) -> None:
    cleaned = plain(text)
    assert all(sign in "\n\t" or sign.isprintable() for sign in cleaned)
    assert plain(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "strict", "prose"),
    [
        ("if x:\n\ty = 'ünï 日本 ✅'", "if x:\n\ty = 'ünï 日本 ✅'", ""),
        ("a\x1bPhidden\x1b\\b\x1b[31m", "a\\x1bPhidden\\x1b\\b\\x1b[31m", ""),
        ("over\rwritten\r\n\0\b\x7f", "over\\rwritten\\r\n\\x00\\x08\\x7f", ""),
        ("\x85\x9b31m\u2028", "<U+0085><U+009B>31m<U+2028>", ""),
        ("\u202eesrever\u2069\u200b\u2060\ufeff\u00ad", "<U+202E>esrever<U+2069><U+200B><U+2060><U+FEFF><U+00AD>", ""),
        (
            "x\U000e0041\U000e007f\ufe01\U000e0101\u3164\u115f\u2800",
            "x<U+E0041><U+E007F><U+FE01><U+E0101><U+3164><U+115F><U+2800>",
            "",
        ),
        (b"caf\xe9".decode("utf-8", "surrogateescape"), "caf\\xe9", ""),
        ("⏸️ 👩‍💻 1️⃣", "⏸<U+FE0F> 👩<U+200D>💻 1<U+FE0F>⃣", "⏸️ 👩‍💻 1️⃣"),
        (
            "x\ufe0f ⏸\ufe0f\ufe0f a\u200db",
            "x<U+FE0F> ⏸<U+FE0F><U+FE0F> a<U+200D>b",
            "x<U+FE0F> ⏸\ufe0f<U+FE0F> a<U+200D>b",
        ),
        ("a\u00a0b\u3000c", "a<U+00A0>b<U+3000>c", "a\u00a0b\u3000c"),
    ],
)
def test_every_character_is_shown_and_none_is_left_out(text: str, strict: str, prose: str) -> None:
    assert visible(text) == strict
    assert visible(text, is_prose=True) == (prose or strict)


@given(st.text())
def test_what_is_shown_can_be_seen(text: str) -> None:
    shown = visible(text)
    assert all(sign in "\n\t" or sign.isprintable() for sign in shown)
    assert visible(shown) == shown


@given(st.text(alphabet=st.sampled_from('\x07\x1b\x7f\x80\x85\x9b\u061c\u202e\u2066\n\t"\\ä日'), max_size=40))
def test_escaped_json_has_the_same_value_without_control_characters(text: str) -> None:
    cleaned = escaped(json.dumps({text: [text]}, ensure_ascii=False, indent=1))
    assert json.loads(cleaned) == {text: [text]}
    assert all(sign == "\n" or sign.isprintable() for sign in cleaned)
    assert ("ä" in cleaned) == ("ä" in text), "what can be read is left as it is"


@given(st.lists(st.text(), min_size=1))
def test_a_shell_takes_a_shown_command_apart_into_the_same_words(words: list[str]) -> None:
    assert shlex.split(command(*words)) == words


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert bounded("x" * LONGEST) == "x" * LONGEST
    assert len(bounded("x" * 3_000_000)) == LONGEST
    assert bounded("x" * 3_000_000).endswith(" […]")


def test_the_text_of_every_event_is_sanitized() -> None:
    bad, good = "\x1b[31mred\0", "red"
    ended = DispatchEnded(id="r.1", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, detail=bad * 2000)
    cleaned = sanitize_event(ended)
    assert isinstance(cleaned, DispatchEnded)
    assert set(cleaned.detail) <= set("red […]")
    assert len(cleaned.detail) <= LONGEST
    refused = WorkRefused(reason=Reason.TAMPERED, detail=bad)
    assert sanitize_event(refused) == replace(refused, detail=good)
    assert sanitize_event(GuardFound(violated=True, lines=(bad, "b"))) == GuardFound(violated=True, lines=(good, "b"))
    over = HandedOver(number=1, tree="t", note=bad * 2000, why=bad)
    assert sanitize_event(over) == HandedOver(number=1, tree="t", note=good * 2000, why=good), "a note is whole"
    verdict = VerdictGiven(tree="t", patch="p", passed=False, items=((bad, False, bad),), agent="a", why=bad)
    assert sanitize_event(verdict) == replace(verdict, items=((good, False, good),), why=good)


def test_file_names_stay_unchanged() -> None:
    taken = WorkTaken(head="h", tree="t", commits=1, files=("odd\x1bname",))
    assert sanitize_event(taken) is taken


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fixes #1", "Fixes #|1"),
        ("closes acme/app#12, gh-3", "closes acme/app#|12, gh-|3"),
        ("resolves https://github.com/a/b/issues/1", "resolves https://github.com/a/b/|issues/1"),
        ("thanks @everyone and (@acme/team)", "thanks @|everyone and (@|acme/team)"),
        ("Co-authored-by: Ann <ann@example.com>", "Co-authored-by: Ann <ann@example.com>"),
        ("Work\n\nSigned-off-by: Ann <ann@example.com>\nCloses nothing\n", "Work\n\nCloses nothing\n"),
        ("\x1b[31mred\x07 title", "red title"),
        ("use C# and # 1", "use C# and # 1"),
        ("Closes acme/app!7, GL-8, &9, [issue:10]", "Closes acme/app!|7, GL-|8, &|9, [|issue:10]"),
        ("see https://gitlab.com/a/b/-/merge_requests/1", "see https://gitlab.com/a/b/-/|merge_requests/1"),
        ('on %1 or %"next week" as ~bug', 'on %|1 or %|"next week" as ~|bug'),
        ("Done.\n/close\n  /label ~x\nin /tmp", "Done.\n/|close\n  /|label ~|x\nin /tmp"),
        ("HEAD~1, ~/x, 5%2, a && b, x != 1, [a]: b", "HEAD~1, ~/x, 5%2, a && b, x != 1, [a]: b"),
    ],
)
def test_a_text_without_effect_on_a_forge_looks_the_same(text: str, expected: str) -> None:
    assert inert(text) == expected.replace("|", "\u200b")
    assert inert(inert(text)) == inert(text)
