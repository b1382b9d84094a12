"""Pictures as SVG text: whole, without scripts, dark on white, for a notebook, a page or a file.

<svg width="760" ...><title>what it shows</title> text, boxes, lines, curves </svg>

A picture is scaled down where there is less room, never cut off. What the pointer rests on says more (`hint`).
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

INK, FAINT, RULE, PAPER = "#222222", "#666666", "#dddddd", "#ffffff"
WIDTH = 760
SIZE = 12
LETTER_W = 6.7  # of the average letter at that size; of a sans-serif face


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Svg:
    """A picture that shows itself in a notebook; in a terminal it says how it is kept."""

    text: str

    def _repr_html_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return (
            f"<a picture of {len(self.text):,} letters of SVG: a notebook shows it, str(it) is what a file is to hold>"
        )

    def __str__(self) -> str:
        return self.text


def picture(parts: Iterable[str], *, width: float = WIDTH, height: float, title: str) -> Svg:
    """Parts on white paper."""
    return Svg(
        text=f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="sans-serif" '
        f'style="max-width:100%;height:auto;background:{PAPER}"><title>{html.escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>{"".join(parts)}</svg>'
    )


def text(
    words: str, *, x: float, y: float, anchor: str = "start", color: str = INK, size: int = SIZE, bold: bool = False
) -> str:
    """Words that begin, end (`anchor` end) or are centred (middle) at x, on the line y."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}"{weight}>'
        f"{html.escape(words)}</text>"
    )


def box(
    *, x: float, y: float, width: float, height: float, color: str, hint: str = "", edge: str = "", round_: float = 0
) -> str:
    """A filled rectangle; one that is too narrow to be seen is a hair's breadth wide."""
    edged = f' stroke="{edge}"' if edge else ""
    corner = f' rx="{round_:g}"' if round_ else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.4):.1f}" height="{height:.1f}" fill="{color}"{edged}'
        f"{corner}>{_hint(hint)}</rect>"
    )


def line(
    *, x: float, y: float, to_x: float, to_y: float, color: str = RULE, width: float = 1, dashed: bool = False
) -> str:
    """A straight line."""
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}" stroke-width="{width:g}"'
        f"{dash}/>"
    )


def curve(points: Sequence[tuple[float, float]], *, color: str, dashed: bool = False, width: float = 1.6) -> str:
    """A line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:g}"{dash}/>'


def dot(*, x: float, y: float, color: str, hint: str = "", radius: float = 4) -> str:
    """A filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{color}">{_hint(hint)}</circle>'


def fits(words: str, *, width: float, size: int = SIZE) -> bool:
    """Whether words have room; estimated, since a picture does not know its reader's letters."""
    return len(words) * LETTER_W * size / SIZE + 4 <= width


def legend(entries: Iterable[tuple[str, str]], *, x: float, y: float) -> list[str]:
    """Swatches of (colour, words) in a row."""
    parts = []
    for color, words in entries:
        parts += [box(x=x, y=y - 9, width=10, height=10, color=color), text(words, x=x + 14, y=y, color=FAINT)]
        x += 14 + len(words) * LETTER_W + 16
    return parts


def _hint(words: str) -> str:
    return f"<title>{html.escape(words)}</title>" if words else ""
