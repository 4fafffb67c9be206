"""A running `runplan web`, and the browser of somebody who visits it."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlencode, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, expect

from runplan.hosts.daemon.state import Known
from tests.support.cli import RUNPLAN, Project

#: For what another process does meanwhile.
PATIENCE_MS = 10_000
expect.set_options(timeout=PATIENCE_MS)

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
#: The width of a phone and of a desktop, with their heights.
HEIGHTS = {390: 844, 1440: 900}

#: The browser reports a violation of the policy also where its console does not.
REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation",
  (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


@dataclass(frozen=True)
class Site:
    """The pages that are served for the user of a project."""

    project: Project
    address: str  #: printed; it signs in once
    pid: int

    @property
    def origin(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    def url(self, path: str = "/", **query: str) -> str:
        """The address of a page; with a query, of a page of the project's repository."""
        words = {"repo": key_of(self.project), **query} if query else {}
        return f"{self.origin}{path}" + (f"?{urlencode(words)}" if words else "")


def key_of(project: Project) -> str:
    """The name of the project's repository in addresses."""
    return Known(common=str(project.path / ".git"), root=str(project.path)).key


@contextlib.contextmanager
def serve(project: Project, *options: str, cwd: Path | None = None) -> Iterator[Site]:
    """`runplan web` in the repository, on a free port; it accepts connections until the end of the block."""
    log = project.home / "web.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [RUNPLAN, "web", "--port", "0", *options],
            cwd=cwd or project.path,
            env=project.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdout
        try:
            address = process.stdout.readline().decode().strip()
            assert address.startswith("http"), log.read_text()
            yield Site(project=project, address=address, pid=process.pid)
        finally:
            process.terminate()
            process.wait(20)
    assert "Traceback" not in log.read_text(), log.read_text()


@dataclass
class Visitor:
    """A browser's context. Whatever its console, its policy or the network complains about fails the test."""

    site: Site
    context: BrowserContext
    complaints: list[str] = field(default_factory=list)
    may_lose_connection: bool = False  #: while the test stops the server

    @classmethod
    @contextlib.contextmanager
    def enter(cls, browser: Browser, site: Site, **options: Any) -> Iterator[Self]:
        """Sign in with the printed address."""
        with cls.open(browser, site, **options) as visitor:
            visitor.page().goto(site.address)
            yield visitor

    @classmethod
    @contextlib.contextmanager
    def open(cls, browser: Browser, site: Site, **options: Any) -> Iterator[Self]:
        """A fresh context, not signed in unless `storage_state` says so."""
        with contextlib.closing(browser.new_context(**options)) as context:
            context.set_default_timeout(PATIENCE_MS)
            visitor = cls(site=site, context=context)
            visitor._listen()
            yield visitor
            for page in context.pages:
                if options.get("java_script_enabled", True):
                    page.evaluate("1")  # whatever it still has to say is said
            assert visitor.complaints == []

    def page(self) -> Page:
        """The first tab."""
        return self.context.pages[0] if self.context.pages else self.context.new_page()

    def tab(self) -> Page:
        """A further tab."""
        return self.context.new_page()

    def see(self, path: str = "/", **query: str) -> Page:
        """The first tab, with the page of the site loaded."""
        page = self.page()
        page.goto(self.site.url(path, **query))
        return page

    def _listen(self) -> None:
        self.context.add_init_script(REPORT_VIOLATIONS)
        self.context.on("console", self._hear)
        self.context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        self.context.on("request", self._check_host)
        self.context.on("response", self._check_status)

    def _hear(self, message: ConsoleMessage) -> None:
        # The console repeats each answer of the server that is no success; those are judged by `_check_status`.
        of_network = message.text.startswith("Failed to load resource: the server responded")
        if message.type in ("error", "warning") and not of_network and not self.may_lose_connection:
            self.complaints.append(message.text)

    def _check_host(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "about") and f"{parts.scheme}://{parts.netloc}" != self.site.origin:
            self.complaints.append(f"request to another host: {request.url}")

    def _check_status(self, response: Response) -> None:
        if response.status >= 500:
            self.complaints.append(f"{response.status} {response.url}")


def check_look(page: Page) -> None:
    """Light and dark, narrow and wide: axe-core finds nothing, and nothing has to be scrolled sideways."""
    for scheme in SCHEMES:
        for width, height in HEIGHTS.items():
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": height})
            faults = list_faults(page)
            assert faults == [], (page.url, scheme, width, faults)
            overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow == 0, (page.url, scheme, width)


def list_faults(page: Page) -> list[tuple[str, str, str]]:
    """What axe-core finds: the rule, the element, and what is wrong with it."""
    violations = Axe().run(page).response["violations"]
    return [
        (violation["id"], node["html"][:200], node["failureSummary"])
        for violation in violations
        for node in violation["nodes"]
    ]
