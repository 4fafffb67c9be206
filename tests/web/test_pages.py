"""Every page, light and dark, narrow and wide: axe-core finds nothing, and nothing has to be scrolled sideways."""

import pytest
from playwright.sync_api import expect

from tests.web.gallery import PAGES, list_pages
from tests.web.site import Site, Visitor, check_look


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_fault_that_axe_finds_and_fits_a_phone(guest: Visitor, gallery: Site, name: str) -> None:
    page = guest.page()
    page.goto(list_pages(gallery)[name])
    expect(page.locator("main h1")).to_have_count(1)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    check_look(page)
    assert guest.complaints == []
