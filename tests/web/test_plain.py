"""Without JavaScript every page can be read and every form works; with a keyboard alone, too."""

from playwright.sync_api import Browser, Page, expect

from runplan.domain.standing.actions import EFFECTS
from tests.support.cli import Project, until
from tests.support.daemons import run_of, until_runs_are
from tests.web.gallery import list_pages
from tests.web.site import Site, Visitor


def wait_for_approval(project: Project) -> None:
    assert project.runplan("start", "X", "1").code == 0
    until(lambda: run_of(project).get("waiting_for") == "approval")


def test_every_page_can_be_read_without_a_script(browser: Browser, gallery: Site, guest: Visitor) -> None:
    signed_in = guest.context.storage_state()
    with Visitor.open(browser, gallery, storage_state=signed_in, java_script_enabled=False) as reader:
        page = reader.page()
        addresses = list_pages(gallery)
        for name, address in addresses.items():
            page.goto(address)
            expect(page.locator("main h1")).to_have_count(1)
            assert len(page.locator("main").inner_text()) > 20, name
        page.goto(addresses["change"])
        expect(page.locator("#diff .add").first).to_be_visible()
        page.goto(addresses["plan"])
        page.locator("#dispatches summary", has_text="implement").first.click()
        page.get_by_role("link", name="Show the log").click()
        expect(page.locator("#lines")).to_contain_text("I read `shop/prices.py`")
        page.goto(addresses["plan-running"])
        expect(page.locator("#agents pre")).to_contain_text("I look for the callers")


def press(page: Page, key: str, times: int = 1) -> None:
    for _ in range(times):
        page.keyboard.press(key)


def tab_to(page: Page, selector: str, most: int = 60) -> None:
    """Press the tab key until the element has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached by the tab key")


def test_pages_are_used_with_the_keyboard_alone(visitor: Visitor, project: Project) -> None:
    wait_for_approval(project)
    page = visitor.see()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.matches('.card')")
    press(page, "g")
    press(page, "i")
    page.wait_for_url("**/inbox")
    tab_to(page, "a[href^='/change']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/change?*")
    tab_to(page, "form.reject textarea")
    page.keyboard.type("gi?jk")  # no shortcut works while one types
    expect(page.get_by_label("What should be different?")).to_have_value("gi?jk")
    press(page, "Backspace", 5)
    page.reload()
    tab_to(page, "form.approve button")

    page.keyboard.press("Enter")

    expect(page.locator(".result")).to_have_text(EFFECTS["approve"])
    until_runs_are(project, "done")
