"""The words for bubblewrap: what is said of an inner folder holds, whatever is said of an outer one."""

from __future__ import annotations

import pytest

from runplan.core.config import Layer
from runplan.core.errors import SettingsError
from runplan.core.sandbox import Room, is_wrapped, wrapped
from tests.support.settings import settle

ROOM = Room(
    writable=("/w/tree", "/g/.git/objects", "/d"),
    kept=("/g/.git/objects/pack", "/w/tree/.git", "/d/guard.json"),
    seen=("/tmp/home",),
    emptied=("/run/user/7",),
    closed=("/run/docker.sock",),
)


def words(room: Room = ROOM, *, root: bool = False) -> list[str]:
    return list(wrapped(("agent", "-x"), room, bwrap="/usr/bin/bwrap", cwd="/w/tree", root=root))


def mounts(told: list[str]) -> list[tuple[str, str]]:
    return [(word, told[at + 2]) for at, word in enumerate(told) if word in ("--bind", "--ro-bind", "--ro-bind-try")]


def test_the_call_stands_at_the_end_as_it_was() -> None:
    assert words()[0] == "/usr/bin/bwrap"
    assert words()[-5:] == ["--chdir", "/w/tree", "--", "agent", "-x"]


def test_outer_folders_come_first() -> None:
    assert mounts(words()) == [
        ("--ro-bind", "/"),
        ("--bind", "/d"),
        ("--ro-bind-try", "/d/guard.json"),
        ("--ro-bind", "/run/docker.sock"),
        ("--ro-bind-try", "/tmp/home"),
        ("--bind", "/w/tree"),
        ("--bind", "/g/.git/objects"),
        ("--ro-bind-try", "/w/tree/.git"),
        ("--ro-bind-try", "/g/.git/objects/pack"),
    ]


def test_what_is_seen_and_writable_is_writable_and_what_is_kept_is_not() -> None:
    both = Room(writable=("/a", "/b"), seen=("/a",), kept=("/b",))

    assert mounts(words(both))[1:] == [("--bind", "/a"), ("--ro-bind-try", "/b")]


def test_folders_of_its_own_are_made_before_anything_is_shown_in_them() -> None:
    told = words()
    emptied = [told[at + 1] for at, word in enumerate(told) if word == "--tmpfs"]

    assert emptied == ["/tmp", "/var/tmp", "/run/user/7"]
    assert told.index("/var/tmp") < told.index("/tmp/home")


def test_what_is_emptied_or_closed_inside_of_what_is_seen_or_writable_stays_so() -> None:
    told = words(
        Room(writable=("/run",), seen=("/tmp/home",), emptied=("/tmp/home/run",), closed=("/run/docker.sock",))
    )

    assert told.index("/tmp/home") < told.index("/tmp/home/run")
    assert told[told.index("/tmp/home/run") - 1] == "--tmpfs"
    assert told.index("/run") < told.index("/run/docker.sock")


@pytest.mark.parametrize("root", [True, False])
def test_root_is_kept_from_the_kernels_switches_and_everybody_from_other_processes(root: bool) -> None:
    told = words(root=root)

    assert ("/proc/sys" in told) is root
    assert {"--unshare-user", "--unshare-pid", "--die-with-parent", "--cap-drop"} <= set(told)
    assert "--unshare-net" not in told


@pytest.mark.parametrize(
    ("argv", "is_so"), [(("/usr/bin/bwrap", "x"), True), (("bwrap",), True), (("sh", "bwrap"), False), ((), False)]
)
def test_a_wrapped_call_is_known(argv: tuple[str, ...], is_so: bool) -> None:
    assert is_wrapped(argv) is is_so


@pytest.mark.parametrize(
    ("agents", "shut_in"),
    [
        pytest.param({}, (False, False), id="nobody"),
        pytest.param({"sandbox": "bwrap"}, (True, True), id="everybody"),
        pytest.param({"codex": {"sandbox": "bwrap"}}, (False, True), id="one"),
        pytest.param({"sandbox": "bwrap", "codex": {"sandbox": "none"}}, (True, False), id="all but one"),
    ],
)
def test_a_table_has_the_last_word(agents: dict[str, object], shut_in: tuple[bool, bool]) -> None:
    settings = settle([Layer(origin="x", values={"agents": agents})]).settings.agents

    assert (settings.sandboxed("claude"), settings.sandboxed("codex")) == shut_in


@pytest.mark.parametrize(
    ("table", "wrong"),
    [({"sandbox": "docker"}, "must be one of none, bwrap"), ({"writable": ["cache"]}, "paths begin with / or ~/")],
)
def test_what_cannot_be_meant_is_refused(table: dict[str, object], wrong: str) -> None:
    with pytest.raises(SettingsError, match=wrong):
        settle([Layer(origin="x", values={"agents": {"claude": table}})])
