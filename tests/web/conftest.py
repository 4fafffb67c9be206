"""Chromium, and a site with a project of its own for each test."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.cli import Meanwhile, Project, a_project
from tests.support.daemons import none_left
from tests.web.gallery import a_gallery
from tests.web.site import Site, Visitor, serve


@contextlib.contextmanager
def launch() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "there is no chromium on PATH: make install-browser"
    words = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium, args=words) as browser:
        yield browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launch() as browser:
        yield browser


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Two phases and an agent that does them well; at the end no process of it is left."""
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, "1", "2")


@pytest.fixture
def meanwhile(tmp_path: Path) -> Meanwhile:
    return Meanwhile(tmp_path)


@pytest.fixture
def site(project: Project) -> Iterator[Site]:
    """`runplan web` for the user of the project."""
    with serve(project) as site:
        yield site


@pytest.fixture
def visitor(browser: Browser, site: Site) -> Iterator[Visitor]:
    """Somebody who has signed in."""
    with Visitor.enter(browser, site) as visitor:
        yield visitor


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with a plan in every state; tests only look at it."""
    with a_gallery(tmp_path_factory.mktemp("gallery")) as project, serve(project) as site:
        yield site


@pytest.fixture(scope="session")
def guest(browser: Browser, gallery: Site) -> Iterator[Visitor]:
    """Somebody who has signed in there."""
    with Visitor.enter(browser, gallery) as visitor:
        yield visitor
