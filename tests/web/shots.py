"""`python -m tests.web.shots DIRECTORY [PAGE ...]`: pictures of the pages, narrow and wide, light and dark."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser

from tests.support.environment import own_environment
from tests.web.conftest import launch
from tests.web.gallery import a_gallery, list_pages
from tests.web.site import HEIGHTS, SCHEMES, Site, Visitor, serve


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with (
        own_environment(),
        tempfile.TemporaryDirectory() as place,
        a_gallery(Path(place)) as project,
        serve(project) as site,
        launch() as browser,
    ):
        take(browser, site, folder, sys.argv[2:])


def take(browser: Browser, site: Site, folder: Path, names: list[str]) -> None:
    with Visitor.enter(browser, site) as visitor:
        page = visitor.page()
        pages = {name: address for name, address in list_pages(site).items() if name in names or not names}
        for name, address in pages.items():
            page.goto(address)
            for scheme in SCHEMES:
                for width, height in HEIGHTS.items():
                    page.emulate_media(color_scheme=scheme)
                    page.set_viewport_size({"width": width, "height": height})
                    page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)


if __name__ == "__main__":
    main()
