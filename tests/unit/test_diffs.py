"""Reading the diff of two commits into files, hunks and lines."""

import pytest

from runplan.app.views.diffs import FileDiff, parse_diff

CHANGED = """\
 a.py | 3 ++-
 1 file changed, 2 insertions(+), 1 deletion(-)

diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -10,3 +10,4 @@ def f():
 one
-two
+TWO
+more
 three
"""


def lines(file: FileDiff) -> list[tuple[str, int, str]]:
    return [(line.mark, line.number, line.text) for hunk in file.hunks for line in hunk.lines]


def test_lines_have_the_numbers_of_their_file() -> None:
    (file,) = parse_diff(CHANGED)
    assert (file.path, file.change, file.added, file.removed) == ("a.py", "changed", 2, 1)
    assert file.hunks[0].head == "@@ -10,3 +10,4 @@ def f():"
    assert lines(file) == [(" ", 10, "one"), ("-", 11, "two"), ("+", 11, "TWO"), ("+", 12, "more"), (" ", 13, "three")]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("diff --git a/x y b/x y\nold mode 100644\nnew mode 100755", FileDiff(path="x y", mode="100644 → 100755")),
        ("diff --git a/e b/e\nnew file mode 100644\nindex 0..0", FileDiff(path="e", change="added")),
        ("diff --git a/s b/s\nnew file mode 120000\nindex 0..1", FileDiff(path="s", change="added", mode="120000")),
        ("diff --git a/g b/g\ndeleted file mode 100644", FileDiff(path="g", change="removed")),
        (
            "diff --git a/a b b/c d\nsimilarity index 100%\nrename from a b\nrename to c d",
            FileDiff(path="c d", old_path="a b", change="renamed"),
        ),
        ("diff --git a/l b/l\nindex 1..2 100644\nBinary files a/l and b/l differ", FileDiff(path="l", is_binary=True)),
        (
            'diff --git "a/\\303\\244\\".py" "b/\\303\\244\\".py"\nnew file mode 100644',
            FileDiff(path='ä".py', change="added"),
        ),
    ],
)
def test_renames_modes_and_binary_files_are_named(head: str, expected: FileDiff) -> None:
    assert parse_diff(head) == [expected]


def test_lines_that_look_like_heads_stay_lines() -> None:
    text = (
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@\n"
        "--- a/x\n+diff --git a/z b/z\n++++ b/x\n same\u2028line\n"
        "\\ No newline at end of file\ndiff --git a/b b/b\nnew file mode 100644\n"
    )
    first, second = parse_diff(text)
    assert lines(first) == [
        ("-", 1, "-- a/x"),
        ("+", 1, "diff --git a/z b/z"),
        ("+", 2, "+++ b/x"),
        (" ", 3, "same<U+2028>line"),
        ("\\", 0, " No newline at end of file"),
    ]
    assert second.path == "b"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    (file,) = parse_diff("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+if\x1b[31m \u202ex\r\n")
    assert lines(file) == [("+", 1, "if\\x1b[31m <U+202E>x\\r")]


def test_a_diff_of_texts_is_read_without_the_head_of_git() -> None:
    (file,) = parse_diff("--- a/plans/x.md\n+++ b/plans/x.md\n@@ -1 +1 @@\n-old\n+new")
    assert (file.path, file.added, file.removed) == ("plans/x.md", 1, 1)
