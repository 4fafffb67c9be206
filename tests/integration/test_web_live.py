"""Open pages hear of changes; nothing looks at files while no page is open."""

import contextlib
import os
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest

from runplan.adapters.store.protocol import Store, open_store
from runplan.adapters.store.sql import Append
from runplan.app.operations.model import Caller
from runplan.app.watch import Topic, Watch
from runplan.domain.run.kinds import RunStatus
from runplan.domain.run.rows import HeldByOther, RunRow
from runplan.hosts.daemon.state import Known
from runplan.interfaces.web.app import MOST_STREAMS
from tests.support.cli import until
from tests.support.web import Browser, know, signed_in

PLAN = "plans/X.md"
NOW = "2026-03-01T12:00:00Z"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}


@pytest.fixture
def browser(env: dict[str, str]) -> Iterator[Browser]:
    with signed_in(env) as browser:
        yield browser


@contextlib.contextmanager
def page(browser: Browser, query: str = "", seen_ns: int | None = None) -> Iterator[HTTPResponse]:
    """An open page that was made now."""
    time.sleep(0.03)  # older files count as seen
    seen = time.time_ns() if seen_ns is None else seen_ns
    with contextlib.closing(browser.open("GET", f"/live?seen={seen}&{query}")) as stream:
        assert next_event(stream) == "retry: 1000"
        yield stream


def next_event(stream: HTTPResponse) -> str:
    lines = iter(lambda: stream.readline().decode().strip(), "")
    return " ".join(lines)


@pytest.fixture
def known(env: dict[str, str], tmp_path: Path) -> Known:
    """A repository with a journal."""
    known = know(env, tmp_path / "repo")
    known.state.mkdir(parents=True)
    with contextlib.closing(open_store(known.state)) as store:
        record_event(store)
    return known


def record_event(store: Store, *, dispatch: str | None = None) -> None:
    claim = store.claim_plan(PLAN, run="r1", owner="1:1:long-gone")
    assert not isinstance(claim, HeldByOther)
    row = RunRow(id="r1", plan=PLAN, started=NOW, state=RunStatus.RUNNING, since=NOW, landing="pr", dispatch=dispatch)
    store.append(Append([(NOW, "Woke", "{}")], row, claim.fence))


@pytest.mark.parametrize("query", ["", "repo={key}", "repo={key}&plan=plans/X.md"])
def test_a_page_hears_of_each_event(browser: Browser, known: Known, query: str) -> None:
    with page(browser, query.format(key=known.key)) as stream, contextlib.closing(open_store(known.state)) as store:
        record_event(store)
        assert next_event(stream) == "event: changed data: 1"
        record_event(store)
        assert next_event(stream) == "event: changed data: 1"


def test_reading_a_journal_does_not_change_it(env: dict[str, str], known: Known) -> None:
    """Else a page would load itself again and again."""
    watch = Watch(Caller(env=env), Topic(known.key, PLAN))
    watch.look()
    for is_open in (False, True):
        with contextlib.closing(open_store(known.state)) if is_open else contextlib.nullcontext():
            for _ in range(2):
                with contextlib.closing(open_store(known.state, writable=False)) as reader:
                    reader.list_runs(None, limit=1)
                assert not watch.look()


def test_a_page_hears_of_the_output_of_the_running_agent(browser: Browser, known: Known) -> None:
    out = known.state / "dispatch/d1/out.log"
    out.parent.mkdir(parents=True)
    out.write_text("begun")
    with contextlib.closing(open_store(known.state)) as store:
        record_event(store, dispatch="d1")
    with page(browser, f"repo={known.key}&plan={PLAN}") as stream:
        out.write_text("begun, and more")
        assert next_event(stream) == "event: changed data: 1"


def test_a_page_hears_of_what_happened_while_it_was_loaded(browser: Browser, known: Known) -> None:
    with page(browser, f"repo={known.key}", seen_ns=0) as stream:
        assert next_event(stream) == "event: changed data: 1"


def test_a_page_survives_an_unplugged_repository(browser: Browser, known: Known) -> None:
    root = Path(known.root)
    with page(browser, f"repo={known.key}&plan={PLAN}") as stream:
        root.rename(root.with_name("gone"))
        assert next_event(stream) == "event: changed data: 1"
        root.with_name("gone").rename(root)
        assert next_event(stream) == "event: changed data: 1"


def test_nothing_looks_at_files_while_no_page_is_open(browser: Browser, known: Known) -> None:
    pages = [browser.watcher.pages]
    with page(browser), page(browser, f"repo={known.key}"):
        pages.append(browser.watcher.pages)
    assert pages == [0, 2]
    until(lambda: browser.watcher.pages == 0)


def test_the_number_of_open_pages_is_limited(browser: Browser, known: Known) -> None:
    with contextlib.ExitStack() as pages:
        for _ in range(MOST_STREAMS):
            stream = pages.enter_context(contextlib.closing(browser.open("GET", "/live")))
            assert next_event(stream) == "retry: 1000"
        assert browser.get("/live").status == 503
    until(lambda: browser.watcher.pages == 0)
    with page(browser):
        pass
