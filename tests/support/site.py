"""Hooks of MkDocs: pages of the repository's root, links to files that are no pages, and llms.txt."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
#: Pages of the root that the site has, too.
ROOT_PAGES = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\[([^]\n]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Lead links to the place of a file in the site; of a file that the site lacks only its name is left."""
    folder = "" if page.file.src_uri in ROOT_PAGES else "docs"
    own = posixpath.join(folder, page.file.src_uri)

    def replaced(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(own), target))
        uri = path if path in ROOT_PAGES else path.removeprefix("docs/")
        if files.get_file_from_path(uri) is not None and (path in ROOT_PAGES or path.startswith("docs/")):
            return f"[{words}]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
        if (ROOT / path).exists():
            return words if path in words else f"{words} (`{path}`)"
        return match[0]  # MkDocs names it and fails

    return LINK.sub(replaced, markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Write llms.txt: all pages with their first sentence, for programs that read."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for page in nav.pages:
        text = (ROOT / ("" if page.file.src_uri in ROOT_PAGES else "docs") / page.file.src_uri).read_text("utf-8")
        title = re.sub("^# ", "", text.partition("\n")[0])
        lines.append(f"- [{title}]({page.url or './'})")
    files.append(File.generated(config, "llms.txt", content="\n".join(lines) + "\n"))
    return nav
