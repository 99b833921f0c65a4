"""Charts: everything is drawn where its value says."""

import re
from xml.etree import ElementTree as ET

import pytest

from pilotfish.planning.charts import Bar, Line, bar_chart, line_chart


def test_bars_are_as_long_as_their_values() -> None:
    svg = ET.fromstring(bar_chart([("g", [Bar("a", [(0, 1.0)], "1"), Bar("b", [(0, 0.5), (1, 1.5)], "2")])]))
    widths = [float(rect.attrib["width"]) for rect in svg.iter("rect")]
    assert widths[1] == pytest.approx(widths[0] / 2, abs=0.1)
    assert widths[2] == pytest.approx(widths[0] * 1.5, abs=0.1)
    first, second = list(svg.iter("rect"))[1:]
    assert float(second.attrib["x"]) == pytest.approx(float(first.attrib["x"]) + widths[1], abs=0.1)


def test_higher_values_are_drawn_higher_within_the_plot() -> None:
    svg = ET.fromstring(line_chart([Line("a", [(1, 0.5), (2, 1.5)])], x_label="x"))
    low, high = (float(dot.attrib["cy"]) for dot in svg.iter("circle"))
    assert high < low < float(svg.attrib["height"])
    assert re.search(r">1\.5<|>1\.6<", ET.tostring(svg, encoding="unicode"))


def test_values_that_are_far_apart_are_spread_by_their_ratio() -> None:
    line = Line("a", [(1, 1.0), (4, 2.0), (16, 3.0)])
    for is_log_x, expected in ((True, 0.5), (False, 3 / 15)):
        svg = ET.fromstring(line_chart([line], x_label="x", is_log_x=is_log_x))
        first, second, third = (float(circle.attrib["cx"]) for circle in svg.iter("circle"))
        assert (second - first) / (third - first) == pytest.approx(expected, abs=0.001)
