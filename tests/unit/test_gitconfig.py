"""Git's configuration: what of it decides what git shows, runs or writes."""

from __future__ import annotations

import pytest

from runplan.core.gitconfig import attribute_files, includes, newly_obeyed, settings, summary


def read(text: str) -> list[tuple[str, str]]:
    return [(one.key, one.value) for one in settings(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a]\nb = c\n", [("a.b", "c")]),
        ('[Filter "X y"]\n\tSmudge = "a; b" # c\n', [("filter.X y.smudge", "a; b")]),
        ("[filter.x] clean=cat", [("filter.x.clean", "cat")]),
        ('[a "\\"q\\\\"]\nb = \\"\\n', [('a."q\\.b', '"\n')]),
        ("[a]\nb\nc = x \\\n  y\n", [("a.b", "true"), ("a.c", "x   y")]),
        ('[a]\nb = "  x "  ; z\n', [("a.b", "  x ")]),
        ("\ufeff[a]\r\nb = c\r\n", [("a.b", "c")]),
        ("# [a]\n; b = c\n", []),
        ("[a]\nb = c\n!\nd = e\n", [("a.b", "c")]),
        ("b = c\n", []),
    ],
)
def test_settings_are_read_as_git_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    # A quoted blank at the beginning is the only thing that is let go of.
    assert [(key, value.strip()) for key, value in read(text)] == [(key, value.strip()) for key, value in expected]


@pytest.mark.parametrize(
    "key",
    [
        *(
            "filter.x.clean",
            "filter.x.smudge",
            "filter.x.process",
            "merge.x.driver",
            "diff.x.textconv",
            "diff.external",
        ),
        *("include.path", "includeif.gitdir:/x/.path", "core.fsmonitor", "core.sshcommand", "core.hookspath"),
        *("core.attributesfile", "credential.helper", "credential.https://x.helper", "gpg.program", "gpg.ssh.program"),
        *("core.autocrlf", "core.symlinks", "remote.origin.receivepack"),
    ],
)
def test_what_names_a_program_or_a_file_is_obeyed(key: str) -> None:
    section, _, name = key.rpartition(".")
    top, _, below = section.partition(".")
    text = f'[{top} "{below}"]\n{name.upper()} = x\n' if below else f"[{top}]\n{name} = x\n"
    assert newly_obeyed(summary(""), summary(text)) == (key,)


@pytest.mark.parametrize("text", ["[core]\neditor = vi\n", '[remote "o"]\nurl = x\nfetch = y\n', "[user]\nname = x\n"])
def test_other_settings_are_not(text: str) -> None:
    assert newly_obeyed(summary(""), summary(text)) == ()


def test_only_what_is_new_or_says_something_else_counts() -> None:
    lfs = '[filter "lfs"]\nclean = git-lfs clean -- %f\n'
    assert newly_obeyed(summary(lfs), summary(f"[user]\nname = x\n{lfs}")) == ()
    assert newly_obeyed(summary(lfs), summary(lfs.replace("git-lfs", "evil"))) == ("filter.lfs.clean",)
    assert newly_obeyed(summary(lfs), summary("")) == ()


def test_of_a_file_of_lines_every_new_one_counts() -> None:
    before = summary("# mine\n*.png binary\n", by_line=True)
    assert newly_obeyed(before, summary("*.png binary\n\n", by_line=True)) == ()
    assert newly_obeyed(before, summary("*.png binary\n*.txt eol=crlf\n", by_line=True)) == ("a line of it",)


def test_a_summary_gives_no_value_away() -> None:
    text = '[credential]\nhelper = "!echo password=hunter2"\n[http]\nextraheader = secret\n'
    assert "hunter2" not in summary(text)
    assert "secret" not in summary(text)


def test_files_that_are_named_are_found_whatever_their_condition() -> None:
    text = '[include]\npath = ~/a\n[includeIf "gitdir:/x/"]\npath = b\n[core]\nattributesFile = c\n'
    assert includes(text) == ("~/a", "b")
    assert attribute_files(text) == ("c",)
