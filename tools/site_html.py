"""A hook of mkdocs: tables that fit the page, and figures that can be enlarged on a phone."""

import html
import re
from typing import Any

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
CELL = re.compile(r"<(t[hd])([^>]*)>(.*?)</\1>", re.DOTALL)
FIGURE = re.compile(r"(<a [^>]*>\s*)?(<img [^>]*?src=\"([^\"]+)\"[^>]*>)")
PRINTED = re.compile(r"(?<=<pre)(?=>(?:(?!</pre>).)*┃[^\n]{105})", re.DOTALL)
"""The place for a class in a table as a wide terminal shows it."""
SHORT, NUMBER, WIDTH = 20, 8, 100
"""Characters of the longest cell of a column that is not broken into lines; the same for all but the first in a table wider than the
page; of the page."""


def on_page_content(content: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of every page."""
    content = PRINTED.sub(' class="printed"', content)
    return FIGURE.sub(_enlarged, TABLE.sub(lambda match: _columns(match[0]), content))


def _enlarged(match: re.Match[str]) -> str:
    """A figure that opens at full size, unless it is a link already."""
    return match[0] if match[1] else f'<a href="{match[3]}">{match[2]}</a>'


def _columns(table: str) -> str:
    """Cells of short columns get the class `short`, those of others `long`; the stylesheet says what that means."""
    columns = list(map(max, zip(*([_length(cell[2]) for cell in CELL.findall(row)] for row in ROW.findall(table)[1:]), strict=False)))
    most = SHORT if sum(min(length, SHORT) + 4 for length in columns) <= WIDTH else NUMBER
    names = ["short" if length <= (most if column else SHORT) else "long" for column, length in enumerate(columns)]

    def row(match: re.Match[str]) -> str:
        left = iter(names)
        return CELL.sub(lambda cell: f'<{cell[1]}{cell[2]} class="{_class(cell, next(left, "long"))}">{cell[3]}</{cell[1]}>', match[0])

    return ROW.sub(row, table)


def _class(cell: re.Match[str], column: str) -> str:
    """That of its column, but a long heading needs room above short cells."""
    return "long" if cell[1] == "th" and _length(cell[3]) > SHORT else column


def _length(cell: str) -> int:
    return len(html.unescape(re.sub(r"<[^>]*>", "", cell)).strip())
