"""Pages that follow the work, and the forms on them, in a real browser."""

from playwright.sync_api import expect

from tests.web.site import Visitor


def test_the_printed_address_signs_a_browser_in_once(visitor: Visitor) -> None:
    page = visitor.page()
    assert page.url == visitor.site.url("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Board")

    visitor.context.clear_cookies()
    page.goto(visitor.site.address)

    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
