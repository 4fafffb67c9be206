"""Every page, light and dark, narrow and wide: axe-core finds nothing, and nothing has to be scrolled sideways."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.web.gallery import PAGES, list_pages
from tests.web.site import HEIGHTS, SCHEMES, Site, Visitor


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_fault_that_axe_finds_and_fits_a_phone(guest: Visitor, gallery: Site, name: str) -> None:
    page = guest.page()
    page.goto(list_pages(gallery)[name])
    expect(page.locator("main h1")).to_have_count(1)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    for scheme in SCHEMES:
        for width, height in HEIGHTS.items():
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": height})
            assert list_faults(page) == [], (scheme, width)
            overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow == 0, (scheme, width)
    assert guest.complaints == []


def list_faults(page: Page) -> list[tuple[str, str, str]]:
    """What axe-core finds: the rule, the element, and what is wrong with it."""
    violations = Axe().run(page).response["violations"]
    return [
        (violation["id"], node["html"][:200], node["failureSummary"])
        for violation in violations
        for node in violation["nodes"]
    ]
