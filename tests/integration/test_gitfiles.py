"""Whether git could read one of its own files; and git itself is asked whether that is true."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from runplan.core.gitfiles import is_config, is_head, is_index, is_packed, packed
from tests.support.repos import isolated_env, make_repo

if TYPE_CHECKING:
    from pathlib import Path

A, B = "a" * 40, "b" * 64

HEADS = {
    "ref: refs/heads/main\n": True,
    "ref:refs/heads/main": True,
    "ref: refs/heads/.invalid\n": True,
    f"{A}\n": True,
    f"{B}\n": True,
    "garbage\n": False,
    "": False,
    "ref: \n": False,
    "ref: main\n": False,
    "abc123\n": False,
}
PACKED = {
    "": True,
    "# pack-refs with: peeled fully-peeled sorted \n": True,
    f"{A} refs/heads/main\n": True,
    f"# pack-refs with: peeled\n{A} refs/tags/v1\n^{A}\n": True,
    f"# x\n{A} refs/tags/v1\n": False,
    "zzz\n": False,
    f"{A} refs/heads/main": False,
    f"{A} refs/heads/main\nzzz\n": False,
}
CONFIGS = {
    "": True,
    "[core]\n\tbare = false\n": True,
    "\ufeff[core]\r\n\tbare = false\r\n": True,
    '[remote "a b\\"c"]\n\turl = "x;y" # why\n': True,
    "[a]b=c\n": True,
    "[a]\n\tb\n": True,
    "[a]\n\tb = \\\n  more\n": True,
    '[a]\n\tb = "one \\\n two"\n': True,
    '[a]\n\tb = x "y" z\n': True,
    '[a.b]\n\tc = \\n\\t\\b\\\\\\"\n': True,
    "; only\n# comments": True,
    "[[[\n": False,
    "garbage in here\n": False,
    "[core\n": False,
    "[core]\n\ta b c\n": False,
    '[core]\n\ta = "open\n': False,
    "[core]\n\ta = \\x\n": False,
    "[core]\n\t= a\n": False,
    "[core]\n\ta_b = c\n": False,
    '[core "open]\n\ta = b\n': False,
    "[co re]\n\ta = b\n": False,
    "\x00\x01": False,
}


@pytest.mark.parametrize("text", HEADS)
def test_a_head_is_a_branch_or_a_commit(text: str) -> None:
    assert is_head(text) is HEADS[text]


@pytest.mark.parametrize("text", PACKED)
def test_packed_refs_are_whole_lines_of_one_shape(text: str) -> None:
    assert is_packed(text) is PACKED[text]


def test_packed_refs_are_mended_with_what_is_known_and_what_can_be_read() -> None:
    broken = f"zzz\n{A} refs/heads/new\n{A} refs/heads/moved\n{A} refs/hea"
    known = {"refs/tags/v1": B, "refs/heads/moved": B}
    text = packed(broken, known)
    assert text == f"{A} refs/heads/moved\n{A} refs/heads/new\n{B} refs/tags/v1\n"
    assert is_packed(text)


def test_an_index_says_what_it_is() -> None:
    assert is_index(b"DIRC\0\0\0\2")
    assert not is_index(b"garb")
    assert not is_index(b"")


@pytest.mark.parametrize("text", CONFIGS)
def test_a_configuration_is_unreadable_only_where_git_says_so(tmp_path: Path, text: str) -> None:
    assert is_config(text) is CONFIGS[text]
    file = tmp_path / "config"
    file.write_text(text, newline="")
    asked = ["git", "config", "--file", str(file), "--list"]
    told = subprocess.run(asked, env=isolated_env(), cwd="/", capture_output=True, check=False)
    assert (told.returncode == 0) is CONFIGS[text], told.stderr


def test_git_agrees_on_heads_and_packed_refs(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    head, refs = repo.path / ".git/HEAD", repo.path / ".git/packed-refs"
    said = head.read_text()
    for text, fine in HEADS.items():
        if B not in text:  # which is for repositories of another kind
            head.write_text(text)
            assert bool(repo.git("rev-parse", "--git-dir", ok=False)) is fine, text
    head.write_text(said)
    tip = repo.head()
    for text, fine in PACKED.items():
        refs.write_text(text.replace(A, tip))
        assert (repo.git("for-each-ref", ok=False) != "") is fine, text
