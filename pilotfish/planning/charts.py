"""Charts as inline SVG: a report must open from disk, without scripts and without a network.

Series are told apart by class (`s0`, `s1`, ...), which the page's style sheet colours for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

NUM_COLOURS = 8
WIDTH = 760
ROW_HEIGHT = 15
LABEL_WIDTH = 210
PLOT_HEIGHT = 240
_AXIS_ENDS = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8)
"""Times a power of ten; a quarter of each is a short number."""


@dataclass(frozen=True)
class Bar:
    """A horizontal bar of one or more segments."""

    label: str
    segments: Sequence[tuple[int, float]]
    """(series, length)."""
    text: str
    """Behind the bar."""


@dataclass(frozen=True)
class Line:
    """A series of points, x ascending."""

    name: str
    points: Sequence[tuple[float, float]]


def bar_chart(groups: Sequence[tuple[str, Sequence[Bar]]], *, reference: float | None = None) -> str:
    """Groups of horizontal bars under one scale from 0; reference: where to draw a vertical line."""
    lengths = [sum(length for _, length in bar.segments) for _, bars in groups for bar in bars]
    top = _ceiling([*lengths, reference or 0.0])
    scale = (WIDTH - LABEL_WIDTH - 90) / top
    height = sum(len(bars) * ROW_HEIGHT + 26 for _, bars in groups) + 6
    svg = _svg(height)
    y = 18
    for title, bars in groups:
        _text(svg, 0, y, title, css="group")
        for bar in bars:
            y += ROW_HEIGHT
            _draw_bar(svg, bar, y, scale)
        y += 26
    if reference is not None:
        x = LABEL_WIDTH + reference * scale
        _element(svg, "line", x1=x, x2=x, y1=4, y2=height - 4, **{"class": "reference"})
    return _markup(svg)


def line_chart(lines: Sequence[Line], *, x_label: str, reference: float | None = None, is_log_x: bool = False) -> str:
    """Lines over a few x values, each with its tick, y from 0; is_log_x: they are above 0 and far apart."""
    xs = sorted({x for line in lines for x, _ in line.points})
    place = math.log2 if is_log_x else float
    top = _ceiling([*(y for line in lines for _, y in line.points), reference or 0.0])
    left, bottom, plot_width = 44, PLOT_HEIGHT + 10, WIDTH - 44 - 180
    svg = _svg(PLOT_HEIGHT + 48)

    def at(x: float, y: float) -> tuple[float, float]:
        share = (place(x) - place(xs[0])) / (place(xs[-1]) - place(xs[0])) if xs[-1] > xs[0] else 0.5
        return left + share * plot_width, bottom - y / top * PLOT_HEIGHT

    for tick in range(5):
        value = top * tick / 4
        _, y = at(xs[0], value)
        _element(svg, "line", x1=left, x2=left + plot_width, y1=y, y2=y, **{"class": "grid"})
        _text(svg, left - 6, y + 4, f"{value:g}", anchor="end")
    for value in xs:
        _text(svg, at(value, 0)[0], bottom + 16, f"{value:g}", anchor="middle")
    _text(svg, left + plot_width / 2, bottom + 34, x_label, anchor="middle")
    if reference is not None:
        _, y = at(xs[0], reference)
        _element(svg, "line", x1=left, x2=left + plot_width, y1=y, y2=y, **{"class": "reference"})
    for index, line in enumerate(lines):
        _draw_line(svg, line, index, [at(*point) for point in line.points])
        _text(svg, left + plot_width + 34, 22 + index * 18, line.name)
        _element(svg, "rect", x=left + plot_width + 16, y=13 + index * 18, width=12, height=10, **_series(index))
    return _markup(svg)


def _draw_bar(svg: ET.Element, bar: Bar, y: float, scale: float) -> None:
    _text(svg, LABEL_WIDTH - 8, y + ROW_HEIGHT - 4, bar.label, anchor="end")
    x = float(LABEL_WIDTH)
    for series, length in bar.segments:
        rect = _element(svg, "rect", x=x, y=y + 2, width=length * scale, height=ROW_HEIGHT - 4, **_series(series))
        _element(rect, "title").text = f"{bar.label}: {bar.text}"
        x += length * scale
    _text(svg, x + 6, y + ROW_HEIGHT - 4, bar.text)


def _draw_line(svg: ET.Element, line: Line, series: int, places: Sequence[tuple[float, float]]) -> None:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    _element(svg, "polyline", points=points, **{"class": f"line s{series % NUM_COLOURS}"})
    for (x, y), (x_value, y_value) in zip(places, line.points, strict=True):
        dot = _element(svg, "circle", cx=x, cy=y, r=3.5, **_series(series))
        _element(dot, "title").text = f"{line.name}, {x_value:g}: {y_value:.3g}"


def _ceiling(values: Sequence[float]) -> float:
    """The end of an axis that all values fit on."""
    largest = max(values, default=0.0)
    if largest <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(largest))
    return next((factor * step for factor in _AXIS_ENDS if factor * step >= largest), 10 * step)


def _series(index: int) -> dict[str, str]:
    return {"class": f"s{index % NUM_COLOURS}"}


def _svg(height: float) -> ET.Element:
    attributes = {"viewBox": f"0 0 {WIDTH} {height:g}", "width": str(WIDTH), "height": f"{height:g}", "role": "img"}
    return ET.Element("svg", attributes)


def _element(parent: ET.Element, tag: str, **attributes: str | float) -> ET.Element:
    written = {name: value if isinstance(value, str) else f"{value:.1f}" for name, value in attributes.items()}
    return ET.SubElement(parent, tag, written)


def _text(parent: ET.Element, x: float, y: float, text: str, *, anchor: str = "start", css: str = "label") -> None:
    _element(parent, "text", x=x, y=y, **{"text-anchor": anchor, "class": css}).text = text


def _markup(svg: ET.Element) -> str:
    return ET.tostring(svg, encoding="unicode")
