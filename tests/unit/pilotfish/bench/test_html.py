"""The page: everything in it, nothing outside it."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from pilotfish.bench.arms import Variant
from pilotfish.bench.charts import Bar, Line, bar_chart, line_chart
from pilotfish.bench.html import to_html
from pilotfish.bench.machine import Machine
from pilotfish.bench.measurement import Arrival, Measurement, SpeculationCounts
from pilotfish.bench.metrics import rows_of
from pilotfish.bench.result import Result
from pilotfish.bench.runner import Sample
from pilotfish.bench.verdicts import verdicts_of

VARIANTS = {variant.name: variant for variant in (Variant(), Variant("ngram", 3), Variant("ngram", 5))}


def sample(arm: str, category: str, decode_s: float, speculation: SpeculationCounts) -> Sample:
    arrivals = (Arrival(0.5, 1), Arrival(0.5 + decode_s, 9))
    return Sample(arm, category, 0, 0, Measurement(token_ids=(1,) * 10, arrivals=arrivals, speculation=speculation))


@pytest.fixture
def result() -> Result:
    drafts = SpeculationCounts(
        num_rounds=4, num_draft_tokens=12, num_accepted_tokens=6, acceptance_per_position=(0.9, 0.6)
    )
    samples = []
    for category in ("q<a>", "math"):
        samples += [
            sample("plain", category, 1.0, SpeculationCounts(num_plain_tokens=10)),
            sample("ngram K=3", category, 0.5, drafts),
            sample("ngram K=5", category, 0.4, drafts),
        ]
    rows = rows_of(samples, "plain")
    return Result(
        date="2026-01-01",
        machine=Machine(processor="a & b", cores=2, memory_gib=4.0, python="3.11", packages={}),
        conditions={"model": "tiny", "prompts": 1},
        rows=rows,
        verdicts=verdicts_of(rows, VARIANTS, must_be_identical=True),
        baseline="plain",
    )


class Page(HTMLParser):
    """Collects what a page refers to and says."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_but_itself(result: Result) -> None:
    html = to_html(result, VARIANTS)
    page = Page(html)
    assert page.references == []
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "url(" not in html
    assert "@import" not in html


def test_it_holds_verdicts_charts_and_every_row(result: Result) -> None:
    page = Page(to_html(result, VARIANTS))
    for verdict in result.verdicts:
        assert verdict.sentence in page.text
    assert page.tags.count("svg") == 4
    assert page.tags.count("tr") == len(result.rows) + len(result.categories)
    assert "2.50x" in page.text


def test_text_from_outside_is_text(result: Result) -> None:
    html = to_html(result, VARIANTS)
    assert "q<a>" in Page(html).text
    assert "<a>" not in html
    assert "a &amp; b" in html


def test_charts_without_anything_to_show_are_left_out(result: Result) -> None:
    only_plain = Result(
        date=result.date,
        machine=result.machine,
        conditions={},
        rows=[row for row in result.rows if row.arm == "plain"],
        verdicts=[],
        baseline="plain",
    )
    page = Page(to_html(only_plain, VARIANTS))
    assert page.tags.count("svg") == 1
    assert "Nothing to judge" in page.text


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
