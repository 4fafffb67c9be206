"""Comments on lines in the words of a rejection."""

import pytest

from runplan.domain.run.requests import read_comments

FILES = ("src/app.py", "a b:c.txt")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *((text, []) for text in ("use the parser", "src/other.py:12: no file of the change", "src/app.py: no line")),
        *((text, []) for text in ("src/app.py:12 no colon", "src/app.py:\u0663: no ASCII")),
        ("src/app.py:12: use the parser", [("R1", "src/app.py", 12, "use the parser")]),
        ("  src/app.py:1: one\nmore of it\n\nother words", [("R1", "src/app.py", 1, "one more of it")]),
        ("all\na b:c.txt:3: x: y\nsrc/app.py:4: z", [("R1", "a b:c.txt", 3, "x: y"), ("R2", "src/app.py", 4, "z")]),
    ],
)
def test_a_line_that_begins_with_a_file_of_the_change_and_a_number_is_a_comment(
    text: str, found: list[tuple[str, str, int, str]]
) -> None:
    comments = read_comments(text, FILES, (), by="Uma")
    assert [(item.id, item.path, item.line, item.words) for item in comments] == found


def test_the_ids_of_comments_follow_those_that_are_known() -> None:
    (comment,) = read_comments("src/app.py:1: x", FILES, ("A1", "R2", "R10", "Rx"), by="Uma")
    assert (comment.id, comment.heading) == ("R11", "Uma on src/app.py:1")
