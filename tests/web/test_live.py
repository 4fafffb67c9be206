"""Pages follow the work by themselves, and the forms on them do what the command does."""

import re

from playwright.sync_api import Browser, Page, expect

from runplan.domain.standing.actions import EFFECTS
from tests.support.cli import Meanwhile, Project, a_plan, fix, steps, until, work, writes
from tests.support.daemons import answering, kill_daemon, run_of, until_runs_are
from tests.web.site import Site, Visitor, check_look, serve

PLAN = "plans/X.md"
MORE = fix('append = "1.txt"\ntext = "and more\\n"', 'commit = "Write more"')

#: Collects what changes in the content of a page.
COUNT_CHANGES = """() => { window.changes = [];
  new MutationObserver((changes) => window.changes.push(...changes.map((change) => change.target.outerHTML)))
    .observe(document.querySelector("main"), {childList: true, subtree: true, characterData: true, attributes: true});
}"""


def wait_for_approval(project: Project, *words: str) -> None:
    """Start phase 1; back when its change waits."""
    assert project.runplan("start", "X", "1", *words).code == 0
    until(lambda: run_of(project).get("waiting_for") == "approval")


def mark(page: Page) -> None:
    """Only a page that is not loaded again keeps the mark."""
    page.evaluate("window.mark = 1")


def is_marked(page: Page) -> bool:
    return page.evaluate("window.mark === 1")


def test_a_plan_is_started_and_followed_to_its_landing(
    visitor: Visitor, project: Project, meanwhile: Meanwhile
) -> None:
    says = 'say = "I write the file **now**."'
    project.agent(steps(says, *meanwhile.pause("a")) + work() + writes("2"))
    board = visitor.page()
    mark(board)
    page = visitor.tab()
    page.goto(visitor.site.url("/"))
    page.get_by_role("link", name="Start … X").click()
    page.get_by_label("do not ask when it is proven").check()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".command")).to_contain_text("runplan start plans/X.md finish auto")
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "runplan start plans/X.md finish auto"
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".result")).to_have_text(EFFECTS["start"])
    expect(page.get_by_role("heading", level=1)).to_have_text("X")
    check_look(page)

    expect(board.locator(".card .badge")).to_have_text("Running")
    board.get_by_role("link", name="X", exact=True).click()
    mark(board)
    expect(board.locator("#agents")).to_contain_text("I write the file **now**.")
    expect(board.locator("#phase-title")).to_have_text("Phase 1 Step 1")
    meanwhile.reached("a")
    meanwhile.let_on("a")

    expect(board.locator("#plan-head .badge").first).to_have_text("Finished")
    expect(board.locator("#dispatches details")).to_have_count(len(project.dispatched()))
    first = project.bodies("DispatchStarted")[0]["id"]
    board.locator(f"#dispatches a[href='#log-{first}']").click()
    expect(board.locator(f"[id='dispatch-{first}'] pre")).to_be_visible()
    assert is_marked(board)
    assert project.landed() == ["1", "2"]


def test_a_change_is_rejected_with_words_and_shown_again_when_it_is_fixed(visitor: Visitor, project: Project) -> None:
    project.agent(writes("1", "2") + MORE)
    wait_for_approval(project)
    other = visitor.see("/change", plan=PLAN, phase="1")
    mark(other)
    page = visitor.tab()
    page.goto(other.url)
    page.get_by_label("What should be different?").fill("Write <more> of it, & soon")
    page.locator("#diff .add").first.click()
    page.keyboard.type("a word")

    page.get_by_role("button", name="Request changes").click()

    expect(page.locator(".result")).to_have_text(EFFECTS["revise"])
    page = other
    expect(page.locator("#diff .add")).to_have_text(["+1", "+and more"])
    (answer,) = [body for kind, body in project.events() if kind == "Answered"]
    assert answer["why"] == "Write <more> of it, & soon\n1.txt:1: a word"
    expect(page.locator("#evidence")).to_contain_text("R1 pass")
    page.wait_for_timeout(1600)  # a click right after the exchange is not taken
    assert is_marked(page)
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".result")).to_have_text(EFFECTS["approve"])
    until_runs_are(project, "done")
    assert project.show("main:1.txt") == "1\nand more"


def test_a_question_is_answered_in_the_inbox(visitor: Visitor, project: Project) -> None:
    asks = ('say = "BLOCKER: Which <b>port</b>?"\nonce = "main:.git/a"', 'exit = 0\nonce = "main:.git/b"')
    project.agent(steps(*asks) + work() + writes("2"))
    page = visitor.see("/inbox")
    expect(page.locator("main")).to_contain_text("Nothing waits for you.")
    mark(page)

    assert project.runplan("start", "X", "1", "auto").code == 0

    expect(page.locator("main article")).to_contain_text("Which <b>port</b>?")
    page.get_by_label("Your answer").fill("-8080")
    assert is_marked(page)
    page.get_by_role("button", name="Send the answer").click()
    expect(page.locator(".result")).to_have_text(EFFECTS["answer"])
    until_runs_are(project, "done")
    (answer,) = [body["text"] for kind, body in project.events() if kind == "QuestionAnswered"]
    assert answer.strip() == "-8080"


def test_a_second_tab_follows_a_stale_page_cannot_approve(visitor: Visitor, browser: Browser, project: Project) -> None:
    project.agent(writes("1", "2") + MORE)
    wait_for_approval(project)
    first = visitor.see("/change", plan=PLAN, phase="1")
    second = visitor.tab()
    second.goto(first.url)
    mark(second)
    third = visitor.tab()
    third.goto(first.url)
    signed_in = visitor.context.storage_state()
    with Visitor.open(browser, visitor.site, storage_state=signed_in, java_script_enabled=False) as reader:
        stale = reader.see("/change", plan=PLAN, phase="1")
        first.get_by_label("What should be different?").fill("More.")
        first.get_by_role("button", name="Request changes").click()
        expect(second.locator("#diff .add")).to_have_text(["+1", "+and more"])
        assert is_marked(second)

        stale.get_by_role("button", name="Approve").click()

        expect(stale.locator(".result")).to_contain_text("the change was replaced")
    assert project.landed() == []
    second.wait_for_timeout(1600)
    second.get_by_role("button", name="Approve").click()
    expect(second.locator(".result")).to_have_text(EFFECTS["approve"])
    expect(third.get_by_role("heading", level=1)).to_have_text("Nothing waits for you here")
    until_runs_are(project, "done")
    assert project.show("main:1.txt") == "1\nand more"


def test_a_page_stays_right_when_the_daemon_restarts(visitor: Visitor, project: Project, meanwhile: Meanwhile) -> None:
    project.agent(steps(*meanwhile.pause("a")) + work() + writes("2"))
    assert project.runplan("start", "X", "1").code == 0
    meanwhile.reached("a")
    page = visitor.see("/plan", plan=PLAN)
    mark(page)
    kill_daemon(project)
    other = visitor.tab().goto(page.url)
    assert other is not None
    assert other.ok
    meanwhile.let_on("a")

    assert project.runplan("resume", "X").code in (0, 4)
    until(lambda: answering(project))

    page.get_by_role("link", name="Review", exact=True).click()
    kill_daemon(project)
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".result")).to_have_text(EFFECTS["approve"])
    until_runs_are(project, "done")
    assert project.landed() == ["1"]


def test_typed_words_focus_scroll_and_open_parts_survive_an_update(visitor: Visitor, project: Project) -> None:
    lines = 'run = "seq 1 400 >long.txt"'
    commit = ('git = ["add", "-A"]', 'git = ["commit", "-qm", "x"]')
    project.agent(steps(lines, 'write = "1.txt"\ntext = "1\\n"', *commit) + writes("2"))
    project.plan(a_plan("2"), name="plans/Y.md")
    wait_for_approval(project)
    page = visitor.see("/change", plan=PLAN, phase="1")
    page.set_viewport_size({"width": 390, "height": 500})
    words = page.get_by_label("What should be different?")
    words.fill("half a sentence")
    folds = page.locator("#diff details")
    before = [fold.get_attribute("open") for fold in folds.all()]
    folds.first.locator("summary").click()
    changed = [fold.get_attribute("open") for fold in folds.all()]
    assert before != changed
    words.focus()
    page.evaluate("document.activeElement.setSelectionRange(2, 6); scrollTo(0, 300)")
    page.evaluate(COUNT_CHANGES)
    top = page.evaluate("scrollY")

    with page.expect_response(re.compile("/change\\?")):
        assert project.runplan("start", "Y", "auto").code == 0
    until_runs_are(project, "done", plan="plans/Y.md")
    page.wait_for_timeout(1000)

    assert page.evaluate("window.changes") == [], "an update that brings nothing new does not flicker"
    assert words.input_value() == "half a sentence"
    assert page.evaluate("[document.activeElement.name, document.activeElement.selectionStart]") == ["text", 2]
    assert page.evaluate("scrollY") == top
    assert [fold.get_attribute("open") for fold in folds.all()] == changed


def test_a_page_says_that_the_server_is_gone(browser: Browser, project: Project) -> None:
    with Visitor.open(browser, Site(project=project, address="http://127.0.0.1/", pid=0)) as visitor:
        with serve(project) as site:
            visitor.site = site
            page = visitor.page()
            page.goto(site.address)
            visitor.may_lose_connection = True
        expect(page.locator("#connection")).to_have_text("Connection lost, retrying.")
