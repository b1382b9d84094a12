"""A page of HTML: whole in itself, without scripts, pictures of SVG within it, to be read on white and in print.

Page(title, tiles, sections) --> text        what is from a run is escaped; what is written here is not
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raymega.pictures.svg import Svg

STYLE = """
body { font: 15px/1.5 system-ui, "Segoe UI", sans-serif; color: #222; background: #fff; }
body { margin: 0 auto; padding: 24px 20px 60px; max-width: 800px; }
h1 { font-size: 26px; margin: 0 0 2px; }
h2 { font-size: 19px; margin: 40px 0 4px; border-top: 1px solid #ddd; padding-top: 18px; }
p { margin: 4px 0 12px; }
.quiet { color: #666; }
code { background: #f3f3f3; padding: 1px 4px; border-radius: 3px; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0; }
.tile { border: 1px solid #ddd; border-radius: 6px; padding: 8px 14px; min-width: 90px; }
.tile b { display: block; font-size: 19px; }
.tile span { color: #666; font-size: 13px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; border-bottom: 2px solid #ccc; }
td { border-bottom: 1px solid #eee; overflow-wrap: anywhere; }
td, th { padding: 4px 12px 4px 0; vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.k { white-space: nowrap; }
td.d { color: #666; }
.swatch { display: inline-block; width: 10px; height: 10px; margin-right: 7px; border-radius: 2px; }
figure { margin: 10px 0 18px; }
svg { display: block; }
figcaption { color: #666; font-size: 13px; margin-bottom: 4px; }
summary { cursor: pointer; }
details { margin-top: 10px; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure at the top of the page, and what it is."""

    figure: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A headline, a sentence that says how to read what is below it, and that."""

    title: str
    lead: str
    parts: tuple[str, ...]


def page(*, title: str, standing: str, tiles: Sequence[Tile], sections: Sequence[Section], foot: str) -> str:
    """The whole text of the page."""
    shown = "".join(
        f'<div class="tile"><b>{html.escape(tile.figure)}</b><span>{html.escape(tile.words)}</span></div>'
        for tile in tiles
    )
    body = "\n".join(
        f"<section><h2>{html.escape(section.title)}</h2><p class='quiet'>{section.lead}</p>\n{''.join(section.parts)}"
        "</section>"
        for section in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>\n"
        f'<h1>{html.escape(title)}</h1><p>{standing}</p><div class="tiles">{shown}</div>\n{body}\n'
        f"<footer><p class='quiet'>{foot}</p></footer></body></html>\n"
    )


def figure(picture: Svg, *, caption: str = "") -> str:
    """A picture with what it shows."""
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{words}{picture.text}</figure>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, kinds: Sequence[str]) -> str:
    """Rows of cells that are HTML already. `kinds`: the class of each column, `n` for numbers."""
    top = "".join(f'<th class="{kind}">{html.escape(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    lines = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def swatch(color: str) -> str:
    """A little field of a colour."""
    return f'<span class="swatch" style="background:{color}"></span>'


def folded(words: str, inner: str) -> str:
    """What is shown when it is asked for."""
    return f"<details><summary>{html.escape(words)}</summary>{inner}</details>"
