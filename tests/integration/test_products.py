"""The products of run.setup in the proof worktree: they are as run.setup left them before each use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.adapters.git.zones import Extra
from tests.support.repos import Place, a_place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as made:
        made.repo.write("conf/.env", "SECRET=1\n").chmod(0o600)
        yield made


@pytest.fixture
def proof(place: Place) -> Path:
    """The proof worktree after run.setup and one look."""
    path = place.proof.checkout_exact_tree(place.base, clean="ignored", extra=extra(place))
    (path / "deps/bin").mkdir(parents=True)
    (path / "deps/bin/run.o").write_text("exit 1\n")
    (path / "deps/link").symlink_to("bin/run.o")
    (path / "made.txt").write_text("made\n")
    (path / "a.txt").write_text("set-up\n")
    os.link(path / "made.txt", path / "deps/hard.o")
    (path / "deps/secret.o").touch(0o600)
    place.proof.keep_worktree(place.base, is_protected=False, extra=extra(place))
    place.proof.keep_products("inputs")
    assert (path / "a.txt").read_text() == "a\n"
    return path


def extra(place: Place) -> Extra:
    return Extra(copies=("conf/.env",), root=place.repo.path)


def test_products_stay_and_everything_else_is_put_right(place: Place, proof: Path) -> None:
    before = sorted(proof.rglob("*"))
    place.repo.at(proof).sh("""
        mkdir -p new/deep empty; for name in added.o deps/bin/added.txt new/deep/x conf/x; do echo x >$name; done
        mkfifo deps/fifo; ln -s /nowhere deps/dangling; echo hacked >conf/.env; rm a.txt; mkfifo a.txt
        chmod 600 b.txt; rm .gitignore; mkdir .gitignore""")
    place.proof.reuse(place.base, extra=extra(place))
    assert sorted(proof.rglob("*")) == before
    assert (proof / "a.txt").read_text() == "a\n"
    assert (proof / "b.txt").stat().st_mode & 0o777 == 0o644
    assert (proof / "conf/.env").read_text() == "SECRET=1\n"


CHANGES = {
    "rewritten, with its size and time": "touch -r deps/bin/run.o ../then; echo exit 0 >deps/bin/run.o; "
    "touch -r ../then deps/bin/run.o; rm ../then",
    "in another directory": "mv deps/bin deps/old; mkdir deps/bin; echo exit 0 >deps/bin/run.o",
    "with another mode": "chmod 755 deps/bin/run.o",
    "gone": "rm deps/link",
    "with a further link": "ln deps/secret.o x",
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_changed_or_missing_product_is_put_right(place: Place, proof: Path, how: str) -> None:
    place.repo.at(proof).sh(CHANGES[how])
    place.proof.reuse(place.base, extra=extra(place))
    assert (proof / "deps/link").read_text() == "exit 1\n"
    assert (proof / "deps/bin/run.o").stat().st_mode & 0o777 == 0o644
    assert not (proof / "x").exists()


def test_an_edit_of_a_tracked_file_that_keeps_its_size_and_time_is_put_right(tmp_path: Path) -> None:
    with a_place(tmp_path) as place:
        place.repo.git("config", "core.trustctime", "false")
        place.workspace.prepare()
        path = place.proof.checkout_exact_tree(place.base, clean="ignored") / "a.txt"
        os.utime(path, (1, 1))
        place.proof.checkout_exact_tree(place.base, clean="ignored")
        path.write_text("b\n")
        os.utime(path, (1, 1))
        place.proof.checkout_exact_tree(place.base, clean="ignored")
        assert path.read_text() == "a\n"


@pytest.mark.rest
def test_a_verifier_does_not_get_products_that_git_would_show(place: Place, proof: Path) -> None:
    place.proof.reuse(place.base, clean=True, extra=extra(place))
    assert place.proof.changed(place.base, ["conf/.env"]) == []
    assert not (proof / "made.txt").exists()
    assert (proof / "deps/bin/run.o").exists()


def test_products_serve_another_commit_and_are_gone_before_the_next_set_up(place: Place, proof: Path) -> None:
    candidate = place.repo.commit("Next", None, **{"b.txt": "new\n"})
    place.proof.reuse(candidate, extra=extra(place))
    assert ((proof / "b.txt").read_text(), place.proof.inputs) == ("new\n", "inputs")
    place.proof.checkout_exact_tree(candidate, clean="ignored", extra=extra(place))
    assert place.proof.inputs == ""


def test_a_protected_worktree_is_not_copied(place: Place, proof: Path) -> None:
    place.proof.checkout_exact_tree(place.base, clean="ignored")
    (proof / "run.o").write_text("exit 1\n")
    place.proof.keep_worktree(place.base, is_protected=True)
    before = (proof / "run.o").stat()
    place.proof.reuse(place.base)
    assert (proof / "run.o").stat().st_ctime_ns == before.st_ctime_ns


def test_a_damaged_worktree_is_put_right_and_a_lost_one_has_no_inputs(place: Place, proof: Path) -> None:
    make_deep(proof)
    assert place.proof.reuse(place.base, extra=extra(place)) == ""
    assert (proof / "deps/link").read_text() == "exit 1\n"
    place.proof.checkout_exact_tree(place.base, clean="ignored", extra=extra(place))
    assert sorted(path.name for path in proof.iterdir()) == [".git", ".gitignore", "a.txt", "b.txt", "conf"]
    place.proof.remove()
    assert place.proof.inputs == ""
    assert place.proof.reuse(place.base) == "the worktree was removed"


def make_deep(directory: Path) -> None:
    """Make a directory whose path is too long for the system."""
    descriptor = os.open(directory, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 100, dir_fd=descriptor)
        deeper = os.open("d" * 100, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
