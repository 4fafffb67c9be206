"""Turns the Markdown of a report into one HTML page without scripts or external resources; diffs are folded."""

import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby

from runplan.engine.report.text import drop_surrogates

LONGEST_DIFF = 200_000  #: characters shown of one commit
COMMIT = re.compile(r"- `([0-9a-f]{7,64})` ")
_WORDS = r"(?:`[^`\n]+`|[^`\n{0}])+?"  #: of an emphasis with this mark
_INLINE = re.compile(
    rf"(?<!`)(?P<fence>`+)(?!`)(?P<code>.{{1,2000}}?)(?<!`)(?P=fence)(?!`)"
    rf"|\[(?P<label>[^\[\]\n]+)\]\((?P<address>https?://[^\s()<>]+)\)"
    rf"|(?<![\w*])\*\*(?!\s)(?P<strong>{_WORDS.format('*')})(?<!\s)\*\*(?![\w*])"
    rf"|(?<![\w*])\*(?!\s)(?P<em>{_WORDS.format('*')})(?<!\s)\*(?![\w*])"
    rf"|(?<!\w)_(?!\s)(?P<em_>{_WORDS.format('_')})(?<!\s)_(?!\w)"
)
#: The colours of the two themes; text has a contrast of at least 4.5 to both backgrounds.
_NAMES = ("text", "add", "del", "page", "block", "line")
LIGHT = dict(zip(_NAMES, ("#1f2328", "#116329", "#a40e26", "#ffffff", "#f6f8fa", "#d0d7de"), strict=True))
DARK = dict(zip(_NAMES, ("#e6edf3", "#7ee787", "#ffa198", "#0d1117", "#161b22", "#3d444d"), strict=True))
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}
body {{ color: var(--text); background: var(--page); overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid var(--line); padding: .2em .6em; text-align: left; vertical-align: top; }}
pre {{ overflow-x: auto; background: var(--block); padding: .6em; font-size: 13px; line-height: 1.35; }}
section {{ border-top: 2px solid var(--line); margin-top: 2em; }}
summary {{ cursor: pointer; }}
.add {{ color: var(--add); }}
.del {{ color: var(--del); }}
@media (max-width: 50em) {{ /* a row becomes a block with one line per cell */
table, tbody, tr, td {{ display: block; }}
th, td:empty {{ display: none; }}
tr {{ margin-bottom: 1em; }}
td::before {{ content: attr(data-label) ": "; font-weight: bold; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def render_page(markdown: str, *, diffs: Mapping[str, str]) -> str:
    light, dark = (" ".join(f"--{name}: {value};" for name, value in theme.items()) for theme in (LIGHT, DARK))
    body = render_body(markdown, diffs=diffs)
    return _PAGE.format(title=escape(read_title(markdown)), light=light, dark=dark, body=body)


def read_title(markdown: str) -> str:
    return next((line[2:] for line in _split_lines(markdown) if line.startswith("# ")), "Report").replace("&lt;", "<")


def render_body(markdown: str, *, diffs: Mapping[str, str]) -> str:
    blocks: list[str] = []
    is_open = False
    for kind, group in groupby(_split_lines(markdown), key=_kind_of_line):
        members = list(group)
        match kind:
            case "heading":
                for line in members:
                    marks, _, text = line.partition(" ")
                    if marks == "##":
                        blocks.append(("</section>\n" if is_open else "") + "<section>")
                        is_open = True
                    blocks.append(f"<h{len(marks)}>{render_inline(text)}</h{len(marks)}>")
            case "row":
                blocks.append("<table>\n" + "\n".join(_render_rows(members)) + "\n</table>")
            case "item":
                blocks.append("<ul>\n" + "\n".join(_render_item(line, diffs) for line in members) + "\n</ul>")
            case "block":
                blocks.append(f'<pre tabindex="0">{escape(chr(10).join(line[4:] for line in members))}</pre>')
            case "text":
                blocks += [f"<p>{render_inline(line)}</p>" for line in members]
    return "\n".join([*blocks, "</section>"] if is_open else blocks)


def _split_lines(markdown: str) -> list[str]:
    return drop_surrogates(markdown).removeprefix("\ufeff").splitlines()


def _kind_of_line(line: str) -> str:
    if not line.strip() or re.fullmatch(r"<!-- runplan: .* -->", line):
        return ""
    if re.match(r"#{1,6} ", line):
        return "heading"
    openings = {"|": "row", "- ": "item", "    ": "block"}
    return next((kind for opening, kind in openings.items() if line.startswith(opening)), "text")


def _render_rows(lines: list[str]) -> Iterator[str]:
    """The rows; a cell has the name of its column, which a narrow screen shows."""
    labels: list[str] = []
    for line in (line for line in lines if not re.fullmatch(r"[|: -]+", line)):
        cells = [  # `text.cell` has escaped their pipes
            re.sub(r"(\\*)\\\|", lambda pipe: pipe[1][: len(pipe[1]) // 2] + "|", cell.strip())
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]
        ]
        opening = [f'<td data-label="{escape(label)}">' for label in labels]
        opening += ["<td>" if labels else "<th>"] * (len(cells) - len(labels))
        labels = labels or cells
        shown = (f"{tag}{render_inline(cell)}</{tag[1:3]}>" for tag, cell in zip(opening, cells, strict=False))
        yield f"<tr>{''.join(shown)}</tr>"


def _render_item(line: str, diffs: Mapping[str, str]) -> str:
    text = render_inline(re.sub(r"^\\", "", line[2:]))
    commit = COMMIT.match(line)
    diff = diffs.get(commit[1]) if commit else None
    if diff is None:
        return f"<li>{text}</li>"
    cut = "" if len(diff) <= LONGEST_DIFF else "\n[…] the whole diff: git show " + (commit[1] if commit else "")
    shown = []
    for diff_line in diff[:LONGEST_DIFF].splitlines():
        kind = {"+": "add", "-": "del"}.get(diff_line[:1])
        shown.append(f'<span class="{kind}">{escape(diff_line)}</span>' if kind else escape(diff_line))
    colours = "\n".join(shown)
    return f'<li><details><summary>{text}</summary>\n<pre tabindex="0">{colours}{cut}</pre></details></li>'


def render_inline(text: str, *, has_links: bool = True) -> str:
    """One line: code spans, emphasis and links to websites. All other text is escaped, whose `<` may be so already."""
    pieces = []
    end = 0
    for match in _INLINE.finditer(text):
        kind = match.lastgroup or ""
        if kind == "code":
            inner = match["code"]
            padded = inner.startswith(" ") and inner.endswith(" ") and inner.strip()
            shown = f"<code>{escape(inner[1:-1] if padded else inner)}</code>"
        elif kind == "address":
            label = render_inline(match["label"], has_links=False)
            shown = f'<a href="{escape(match["address"])}" rel="noreferrer">{label}</a>' if has_links else label
        else:
            tag = kind.partition("_")[0]
            shown = f"<{tag}>{render_inline(match[kind], has_links=has_links)}</{tag}>"
        pieces += [escape(text[end : match.start()].replace("&lt;", "<")), shown]
        end = match.end()
    return "".join([*pieces, escape(text[end:].replace("&lt;", "<"))])
