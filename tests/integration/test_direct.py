"""Landing by a push: one answer for every way it can go, the remote never forced, the user's branch never lost."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from runplan.domain.errors import GitFailed, Unreachable
from runplan.domain.run.events import LandingStarted
from runplan.engine.landing.lander import Failed, Landed, LandingAnswer, Refused, TargetMoved
from tests.support.cli import until
from tests.support.landings import at, candidate, files_of, leftovers, snapshot
from tests.support.repos import MAIN, TRACKED, Pair, make_pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair(tmp_path, **{"a.txt": "a\n", "b.txt": "b\n"})


def land(pair: Pair, landing: LandingStarted | str) -> LandingAnswer:
    """Land it; of a commit, with a new intent."""
    with pair.lander() as direct:
        return direct.land(pair.intent(landing) if isinstance(landing, str) else landing)


# --- it lands -------------------------------------------------------------------------------------------


def test_a_landing_is_on_the_remote_and_the_checkout_follows(pair: Pair) -> None:
    pair.here.write("b.txt", "edited\n")
    pair.here.write("mine.txt", "untracked\n")
    new = candidate(pair.here, {"a.txt": "a2\n"})
    assert land(pair, new) == Landed(tip=new)
    assert pair.there.head(MAIN) == pair.here.head(MAIN) == pair.here.head(TRACKED) == new
    assert pair.here.status() == " M b.txt\n?? mine.txt"
    assert (pair.here.path / "a.txt").read_text() == "a2\n"
    assert leftovers(pair.here) == ()


@pytest.mark.parametrize("accepts", [True, False])
def test_the_candidate_gets_into_the_repository_only_when_the_remote_has_taken_it(pair: Pair, accepts: bool) -> None:
    new = candidate(pair.tool, {"a.txt": "a2\n"}, onto=pair.here.head(MAIN))
    landing = pair.intent(new)
    before = objects(pair)
    seen = []

    def deliver() -> None:
        seen.append(objects(pair))
        pair.here.git("fetch", "-q", str(pair.tool.path), new)

    if not accepts:
        pair.hook("pre-receive", "exit 1")
    with pair.lander() as direct:
        answer = direct.land(landing, deliver)
    assert seen == ([before] if accepts else [])
    assert answer == Landed(tip=new) if accepts else isinstance(answer, Refused)
    assert (objects(pair) == before) is not accepts
    assert pair.here.head(TRACKED) == pair.here.head(MAIN) == (new if accepts else landing.old)


def objects(pair: Pair) -> list[str]:
    return sorted(pair.here.git("cat-file", "--batch-all-objects", "--batch-check").splitlines())


def test_the_push_reaches_the_remote_as_the_users_own_configuration_says(pair: Pair, tmp_path: Path) -> None:
    more = tmp_path / "more.config"
    more.write_text(f'[url "{pair.there.path.parent}/"]\n\tinsteadOf = forge:\n')
    pair.here.git("config", "include.path", str(more))
    pair.here.git("remote", "set-url", "origin", f"forge:{pair.there.path.name}")
    new = candidate(pair.here, {"a.txt": "a2\n"})
    assert land(pair, new) == Landed(tip=new)
    assert pair.there.head(MAIN) == new


def test_a_landing_starts_at_the_remote_tip_and_updates_a_branch_behind_it(pair: Pair) -> None:
    ottos = pair.elsewhere(**{"c.txt": "c\n"})
    with pair.lander() as direct:
        assert direct.tip() == ottos
        new = candidate(pair.here, {"a.txt": "a2\n"}, onto=TRACKED)
        assert direct.land(direct.prepare(id="L1", old=ottos, new=new)) == Landed(tip=new)
    assert pair.here.head(MAIN) == new
    assert pair.here.status() == ""
    assert (pair.here.path / "c.txt").read_text() == "c\n"


def test_nothing_but_the_branch_is_pushed_and_nothing_but_its_ref_is_fetched(pair: Pair) -> None:
    pair.here.git("config", "push.followTags", "true")
    pair.here.git("config", "--add", "remote.origin.fetch", "+refs/heads/*:refs/others/*")
    ottos = pair.elsewhere()
    pair.there.git("tag", "v0", MAIN)
    pair.there.git("branch", "theirs", MAIN)
    before = pair.here.refs()
    with pair.lander() as direct:
        assert direct.tip() == ottos
        assert pair.here.refs() == before | {TRACKED: ottos}
        new = candidate(pair.here, {"a.txt": "a2\n"}, onto=ottos)
        pair.here.git("tag", "-m", "v1", "v1", new)
        assert direct.land(pair.intent(new)) == Landed(tip=new)
    assert sorted(pair.there.refs()) == [MAIN, "refs/heads/theirs", "refs/tags/v0"]
    assert not (pair.here.path / ".git/FETCH_HEAD").exists()


# --- the local branch -----------------------------------------------------------------------------------


def test_an_edit_of_the_user_keeps_the_local_branch(pair: Pair) -> None:
    pair.here.write("a.txt", "edited\n")
    old = pair.here.head(MAIN)
    before = files_of(pair.here.path)
    new = candidate(pair.here, {"a.txt": "a2\n"})
    landing = pair.intent(new)
    with pair.lander() as direct:
        answer = direct.land(landing)
        seen = direct.observe(landing)
    assert isinstance(answer, Landed)
    assert answer.note.startswith(f"your local main stays at {old:.7}: a.txt is edited in {pair.here.path}; ")
    pull = f"git -C {pair.here.path} pull --rebase origin main"
    assert answer.note.endswith(f"; to update it: {pull}")
    assert seen == Landed(tip=new, note=f"your local main stays at {old:.7}; to update it: {pull}")
    assert (pair.there.head(MAIN), pair.here.head(MAIN)) == (new, old)
    assert files_of(pair.here.path) == before
    assert leftovers(pair.here) == ()


def stays(pair: Pair) -> str:
    """The command that a landing names when the local branch did not follow, because it was locked."""
    lock = pair.here.path / ".git/refs/heads/main.lock"
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    with pair.lander(at("direct.follow.before", lock.touch)) as direct:
        answer = direct.land(landing)
    lock.unlink()
    assert isinstance(answer, Landed)
    return answer.note.rpartition("to update it: ")[2]


def test_the_suggested_command_names_the_checkout_of_the_branch(pair: Pair, tmp_path: Path) -> None:
    pair.here.git("switch", "-qc", "mine")
    other = tmp_path / "an other"
    pair.here.git("worktree", "add", "-q", str(other), "main")
    line = stays(pair)
    assert line == f"git -C '{other}' pull --rebase origin main"
    pair.here.sh(line)
    assert pair.here.head(MAIN) == pair.there.head(MAIN)


def test_commits_of_the_users_own_are_neither_merged_nor_touched_nor_pushed(pair: Pair) -> None:
    new = candidate(pair.here, {"a.txt": "a2\n"})
    own = pair.here.commit("Mine", **{"mine.txt": "m\n"})
    answer = land(pair, new)
    assert isinstance(answer, Landed)
    assert "has commits of its own" in answer.note
    assert (pair.there.head(MAIN), pair.here.head(MAIN)) == (new, own)
    assert pair.here.status() == ""


def test_a_checkout_half_replaced_by_a_full_disk_is_mended_later(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    new = candidate(pair.here, {"a.txt": "a2\n", "b.txt": "b2\n"})
    landing = pair.intent(new)

    def refuse(*_: object, **_options: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "a.txt")

    def fill_disk() -> None:
        monkeypatch.setattr(os, "link", refuse)

    with pair.lander(at("land.prepared", fill_disk)) as direct, pytest.raises(Unreachable, match="half replaced"):
        direct.land(landing)
    with pair.lander() as direct, pytest.raises(Unreachable, match="half replaced"):
        direct.land(landing)
    monkeypatch.undo()
    assert land(pair, landing) == Landed(tip=new)
    assert (pair.here.head(MAIN), pair.here.status(), leftovers(pair.here)) == (new, "", ())


def test_a_local_branch_that_was_pulled_already_needs_nothing(pair: Pair) -> None:
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    pair.here.git("push", "-q", "origin", f"{landing.new}:main")
    pair.here.git("pull", "-q", "--ff-only", "origin", "main")
    own = pair.here.commit("Mine", **{"mine.txt": "m\n"})
    assert land(pair, landing) == Landed(tip=landing.new)
    assert pair.here.head(MAIN) == own


def test_a_local_branch_that_was_set_back_since_the_intent_stays(pair: Pair) -> None:
    before = pair.here.head(MAIN)
    pair.here.commit("Second", **{"b.txt": "b2\n"})
    pair.here.git("push", "-q", "origin", "main")
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    pair.here.git("reset", "-q", "--hard", before)
    answer = land(pair, landing)
    assert isinstance(answer, Landed)
    assert f"your local main stays at {before:.7}: it has moved meanwhile" in answer.note
    assert pair.here.head(MAIN) == before


def test_a_tracking_ref_that_the_user_fetched_meanwhile_is_not_set_back(pair: Pair) -> None:
    new = candidate(pair.here, {"a.txt": "a2\n"})

    def work_on_top() -> None:
        later = candidate(pair.here, {"b.txt": "b2\n"}, onto=new)
        pair.here.git("push", "-q", "origin", f"{later}:main")

    with pair.lander() as direct:
        assert direct.land(pair.intent(new), work_on_top) == Landed(tip=new)
    assert pair.here.head(TRACKED) == pair.there.head(MAIN) != new


def test_no_local_branch_is_made(pair: Pair) -> None:
    pair.here.git("switch", "-q", "--detach")
    pair.here.git("branch", "-qD", "main")
    new = candidate(pair.here, {"a.txt": "a2\n"}, onto="HEAD")
    assert land(pair, new) == Landed(tip=new)
    assert MAIN not in pair.here.refs()


# --- it does not land -----------------------------------------------------------------------------------


def test_a_remote_that_moved_is_reported_and_not_changed(pair: Pair) -> None:
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    ottos = pair.elsewhere(**{"c.txt": "c\n"})
    before = snapshot(pair.here)
    assert land(pair, landing) == TargetMoved(tip=ottos)
    assert pair.there.head(MAIN) == ottos
    after = snapshot(pair.here)
    assert (after.files, after.index, after.leftovers) == (before.files, before.index, ())
    assert after.refs == before.refs | {TRACKED: ottos}


def test_a_remote_that_moves_while_the_push_is_taken_in_is_not_overwritten(pair: Pair) -> None:
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    other = candidate(pair.there, {"c.txt": "c\n"}, landing="L2")
    pair.hook("pre-receive", f"env -u GIT_QUARANTINE_PATH git update-ref {MAIN} {other}")
    assert land(pair, landing) == TargetMoved(tip=other)
    assert pair.landed() == 0


def test_a_remote_that_is_set_back_before_the_push_does_not_get_its_dropped_commits_again(pair: Pair) -> None:
    start = pair.there.head(MAIN)
    pair.elsewhere(**{"c.txt": "c\n"})
    with pair.lander(at("direct.push.before", lambda: pair.there.git("update-ref", MAIN, start))) as direct:
        old = direct.tip()
        assert old is not None
        landing = direct.prepare(id="L1", old=old, new=candidate(pair.here, {"a.txt": "a2\n"}, onto=TRACKED))
        assert direct.land(landing) == TargetMoved(tip=start)
    assert pair.there.head(MAIN) == start


def test_a_commit_that_is_not_built_on_the_old_tip_is_not_pushed(pair: Pair) -> None:
    """The lease would let the server drop the commits of others."""
    start = pair.there.head(MAIN)
    ottos = pair.elsewhere(**{"c.txt": "c\n"})
    with pair.lander() as direct:
        direct.tip()
        landing = direct.prepare(id="L1", old=ottos, new=candidate(pair.here, {"a.txt": "a2\n"}, onto=start))
        with pytest.raises(GitFailed, match="is not built on"):
            direct.land(landing)
    assert pair.there.head(MAIN) == ottos


def test_a_server_that_declines_is_quoted(pair: Pair) -> None:
    pair.hook("pre-receive", "echo 'GH006: Protected branch.'; echo '- Use a pull request.'; exit 1")
    new = candidate(pair.here, {"a.txt": "a2\n"})
    before = snapshot(pair.here)
    answer = land(pair, new)
    assert isinstance(answer, Failed)
    words = "GH006: Protected branch. / - Use a pull request. "
    assert answer.why.startswith(f"origin does not accept a push to main: {words}")
    assert "hook declined" in answer.why
    assert snapshot(pair.here) == before
    assert pair.landed() == 0


def test_a_locked_branch_on_the_server_is_trouble_and_no_refusal(pair: Pair) -> None:
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    lock = pair.there.path / f"{MAIN}.lock"
    lock.touch()
    with pair.lander() as direct:
        with pytest.raises(Unreachable, match=r"the push to main on origin failed and changed nothing: .*lock"):
            direct.land(landing)
        lock.unlink()
        assert direct.land(landing) == Landed(tip=landing.new)


def test_a_branch_that_the_server_keeps_is_named_or_tried_again(pair: Pair) -> None:
    merged = pair.here.head(TRACKED)
    pair.hook("pre-receive", "echo 'It is protected.'; exit 1")
    with pair.lander() as direct:
        assert direct.delete_branch(merged).startswith("the branch main stays on origin: It is protected. ")
        pair.hook("pre-receive", "kill -9 $PPID")
        with pytest.raises(Unreachable, match="the branch main was not deleted: "):
            direct.delete_branch(merged)


# --- it is not known ------------------------------------------------------------------------------------


def test_a_push_whose_answer_was_lost_is_seen_to_have_landed(pair: Pair) -> None:
    hook = pair.hook("reference-transaction", '[ "$1" = committed ] && rm "$0" && kill -9 $PPID\nexit 0')
    new = candidate(pair.here, {"a.txt": "a2\n"})
    assert land(pair, new) == Landed(tip=new)
    assert not hook.exists(), "the answer was cut off"
    assert pair.landed() == 1
    assert pair.here.head(MAIN) == new
    assert leftovers(pair.here) == ()


@pytest.mark.rest
def test_a_push_that_times_out_is_checked_on_the_remote(pair: Pair) -> None:
    here, go_on = pair.there.path / "here", pair.there.path / "go-on"
    pair.hook("post-receive", f"touch {here}; until [ -e {go_on} ]; do sleep 0.01; done")
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))

    def too_late() -> None:
        until(here.exists)
        time.sleep(2.1)
        go_on.touch()

    waiter = threading.Thread(target=too_late)
    waiter.start()
    with pair.lander(timeout_s=2.0) as direct:
        assert direct.land(landing) == Landed(tip=landing.new)
    waiter.join()
    assert pair.landed() == 1
    assert leftovers(pair.here) == ()


def test_a_remote_that_is_gone_in_the_middle_is_unreachable_and_everything_is_kept(pair: Pair) -> None:
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    away = pair.there.path.with_name("away")
    before = snapshot(pair.here)
    with pair.lander(at("direct.push.before", lambda: pair.there.path.rename(away))) as direct:
        with pytest.raises(Unreachable, match=r"cannot fetch main from origin: .*does not appear to be a git"):
            direct.land(landing)
        assert snapshot(pair.here) == before
    away.rename(pair.there.path)
    with pair.lander() as direct:
        direct.recover(landing)
        assert direct.observe(landing) is None
        assert direct.land(landing) == Landed(tip=landing.new)
    assert pair.landed() == 1


def test_a_branch_deleted_on_the_remote_is_an_error_with_a_remedy(pair: Pair) -> None:
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    pair.there.git("update-ref", "-d", MAIN)
    with pair.lander() as direct:
        assert direct.tip() is None
        with pytest.raises(Unreachable, match=f"git push origin {landing.old}:refs/heads/main"):
            direct.land(landing)


def test_the_same_landing_as_another_commit_is_seen_and_not_landed_twice(pair: Pair) -> None:
    """A slow push of an earlier process arrives after the candidate was built again."""
    slow = candidate(pair.here, {"a.txt": "slow\n"})
    landing = pair.intent(candidate(pair.here, {"a.txt": "a2\n"}))
    pair.here.git("push", "-q", pair.there.path.as_posix(), f"{slow}:{MAIN}")
    answer = land(pair, landing)
    pull = f"git -C {pair.here.path} pull --rebase origin main"
    assert answer == Landed(tip=slow, note=f"your local main stays at {landing.old:.7}; to update it: {pull}")
    assert pair.landed() == 1


# --- work that has not landed ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_owner", [True, False])
def test_only_the_owner_of_a_run_pushes_its_work(pair: Pair, is_owner: bool) -> None:
    new = candidate(pair.here, {"a.txt": "changed\n"})
    with pair.lander() as direct:
        why = direct.push_work("refs/runplan/wip/x/1", new, old="", is_owner=lambda: is_owner)

    assert ("refs/runplan/wip/x/1" in pair.there.refs(), why == "") == (is_owner, is_owner)
