"""The products of run.setup in the proof worktree: kept while they are as run.setup left them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runplan.git.zones import Extra
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
    place.proof.keep_products(place.base, "inputs", extra=extra(place))
    assert (path / "a.txt").read_text() == "a\n"
    return path


def extra(place: Place) -> Extra:
    return Extra(copies=("conf/.env",), root=place.repo.path)


def look(place: Place) -> bool:
    return not place.proof.reuse(place.base, extra=extra(place))


def test_products_stay_and_everything_else_is_put_right(place: Place, proof: Path) -> None:
    before = sorted(proof.rglob("*"))
    for name in ("added.o", "deps/bin/added.txt", "new/deep/x", "conf/x"):
        (proof / name).parent.mkdir(parents=True, exist_ok=True)
        (proof / name).write_text("x")
    (proof / "empty").mkdir()
    os.mkfifo(proof / "deps/fifo")
    (proof / "deps/dangling").symlink_to("/nowhere")
    (proof / "conf/.env").write_text("hacked\n")
    (proof / "a.txt").unlink()
    os.mkfifo(proof / "a.txt")
    (proof / "b.txt").chmod(0o600)
    (proof / ".gitignore").unlink()
    (proof / ".gitignore").mkdir()
    assert look(place)
    assert sorted(proof.rglob("*")) == before
    assert (proof / "a.txt").read_text() == "a\n"
    assert (proof / "b.txt").stat().st_mode & 0o777 == 0o644
    assert (proof / "conf/.env").read_text() == "SECRET=1\n"


def rewrite(path: Path) -> None:
    """With the same size and time."""
    status = (path / "deps/bin/run.o").stat()
    (path / "deps/bin/run.o").write_text("exit 0\n")
    os.utime(path / "deps/bin/run.o", ns=(status.st_atime_ns, status.st_mtime_ns))


def swap_directory(path: Path) -> None:
    (path / "deps/bin").rename(path / "deps/old")
    (path / "deps/bin").mkdir()
    (path / "deps/bin/run.o").write_text("exit 0\n")


CHANGES: dict[str, Callable[[Path], object]] = {
    "rewritten": rewrite,
    "in another directory": swap_directory,
    "with another mode": lambda path: (path / "deps/bin/run.o").chmod(0o755),
    "gone": lambda path: (path / "deps/link").unlink(),
    "with a further link": lambda path: os.link(path / "deps/secret.o", path / "x"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_changed_or_missing_product_is_seen(place: Place, proof: Path, how: str) -> None:
    CHANGES[how](proof)
    assert not look(place)
    assert not look(place)


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


def test_a_verifier_does_not_get_products_that_git_would_show(place: Place, proof: Path) -> None:
    assert place.proof.reuse(place.base, clean=True, extra=extra(place)) == ""
    assert place.proof.changed(place.base, ["conf/.env"]) == []
    assert not (proof / "made.txt").exists()
    assert (proof / "deps/bin/run.o").exists()


def test_products_serve_another_commit_and_are_gone_before_the_next_set_up(place: Place, proof: Path) -> None:
    candidate = place.repo.commit("Next", None, **{"b.txt": "new\n"})
    assert place.proof.reuse(candidate, extra=extra(place)) == ""
    assert ((proof / "b.txt").read_text(), place.proof.inputs) == ("new\n", "inputs")
    place.proof.checkout_exact_tree(candidate, clean="ignored", extra=extra(place))
    assert place.proof.inputs == ""


def test_a_changed_product_of_agents_is_seen_and_nothing_is_deleted(place: Place) -> None:
    place.zone.lease(branch="refs/heads/b", base=place.base, pin="x")
    path = place.zone.lend(branch="refs/heads/b", clean="untracked")
    (path / "deps").mkdir()
    (path / "deps/run.o").write_text("exit 1\n")
    (path / "made.txt").write_text("git does not ignore it, so it does not stay\n")
    place.zone.keep_products(place.base, "inputs")
    (path / "deps/own.o").write_text("of the agent\n")
    assert place.zone.describe_changed_product(place.base) == ""
    (path / "deps/run.o").write_text("exit 0\n")
    assert place.zone.describe_changed_product(place.base) == "a product changed: deps/run.o"
    assert (path / "deps/own.o").exists()


def test_a_lost_or_damaged_worktree_needs_a_set_up(place: Place, proof: Path) -> None:
    make_deep(proof)
    assert not look(place)
    place.proof.checkout_exact_tree(place.base, clean="ignored", extra=extra(place))
    assert sorted(path.name for path in proof.iterdir()) == [".git", ".gitignore", "a.txt", "b.txt", "conf"]
    place.proof.remove()
    assert not look(place)


def test_a_filter_that_changes_a_product_while_files_are_put_right_is_seen(place: Place) -> None:
    script = "test ! -e run.o || echo 'exit 0' >run.o; cat\n"
    place.repo.git("config", "filter.x.smudge", "sh convert.sh")
    commit = place.repo.commit("Convert", None, **{"convert.sh": script, ".gitattributes": "b.txt filter=x\n"})
    place.workspace.prepare()
    path = place.proof.checkout_exact_tree(commit, clean="ignored")
    (path / "run.o").write_text("exit 1\n")
    place.proof.keep_products(commit, "inputs")
    assert place.proof.reuse(commit) == ""
    (path / "b.txt").write_text("x")
    assert place.proof.reuse(commit) == "a product changed: run.o"


def make_deep(directory: Path) -> None:
    """Make a directory whose path is too long for the system."""
    descriptor = os.open(directory, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 100, dir_fd=descriptor)
        deeper = os.open("d" * 100, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
