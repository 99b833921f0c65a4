"""Figures on pages are those of the stored results that they cite: benchmarks/figures.txt says which stands where."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
SECTION = re.compile(r"^== (?P<page>\S+): (?P<result>\S+)\n(?P<lines>(?:.+\n)+)", re.MULTILINE)
SECTIONS = list(SECTION.finditer((ROOT / "benchmarks" / "figures.txt").read_text(encoding="utf-8")))
CITED = re.compile(r"[a-z_]+[\w-]*-\d{4}-\d\d-\d\d\.json")
OF_MANY = {"max": max, "min": min, "sum": sum, "count": len}


def selected(value: Any, path: str) -> list[Any]:
    """What stands at `rows[key=value,...].key.key`, of the rows that have it."""
    for step in re.findall(r'\[(?:"[^"]*"|[^\]"])*\]|[^.\[\]]+', path):
        if step.startswith("["):
            wanted = re.findall(r'([^=,\[]+)=("[^"]*"|[^,\]]*)', step)
            value = [row for row in value if all(str(row.get(key)) == text.strip('"') for key, text in wanted)]
        else:
            value = [row[step] for row in value if step in row] if isinstance(value, list) else value[step]
    return value if isinstance(value, list) else [value]


def evaluated(document: Any, expression: str) -> float:
    """Paths and numbers, multiplied, divided and added up from left to right."""
    first, *rest = re.split(r" ([*/+]) ", expression.strip())
    result = term(document, first)
    for operator, right in zip(rest[::2], rest[1::2], strict=True):
        value = term(document, right)
        match operator:
            case "*":
                result *= value
            case "/":
                result /= value
            case _:
                result += value
    return result


def term(document: Any, text: str) -> float:
    if re.fullmatch(r"[\d.]+", text):
        return float(text)
    function, _, path = text.partition(" ") if text.split(" ")[0] in OF_MANY else ("", "", text)
    found = selected(document, path)
    if function:
        return float(OF_MANY[function](found))  # type: ignore[operator]
    assert len(found) == 1, f"{len(found)} values at {path}"
    return float(found[0])


def as_shown(value: float, figure: str) -> str:
    """As many decimals and the same marks as the figure has."""
    decimals = len(figure.partition(".")[2])
    return f"{value:{',' if ',' in figure else ''}.{decimals}f}"


def wrong_figures(page: str, document: Any, lines: str) -> list[str]:
    wrong = []
    for line in lines.splitlines():
        text, expressions = line.split(" = ", 1)
        figures = re.findall(r"\{(.*?)\}", text)
        if re.sub(r"[{}]", "", text).strip() not in page:
            wrong.append(f"not on the page: {text}")
        for figure, expression in zip(figures, expressions.split(";"), strict=True):
            shown = as_shown(evaluated(document, expression), figure)
            if shown != figure:
                wrong.append(f"{text}: {figure} is {shown}")
    return wrong


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section['page']}-{section['result']}")
def test_figures_are_those_of_the_results(section: re.Match[str]) -> None:
    page = (ROOT / section["page"]).read_text(encoding="utf-8")
    assert wrong_figures(page, json.loads((RESULTS / section["result"]).read_text()), section["lines"]) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_result_that_a_page_cites_is_compared(page: Path) -> None:
    compared = {section["result"] for section in SECTIONS if section["page"] == str(page.relative_to(ROOT))}
    assert set(CITED.findall(page.read_text(encoding="utf-8"))) - compared == set()


DOCUMENT = {"rows": [{"arm": "a, b", "n": 3, "x": {"p": 1234.6}}, {"arm": "c", "n": 3, "x": {"p": 2.0}}]}


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ('{1,235} tokens = rows[arm="a, b",n=3].x.p', True),
        ("{617.3}x, {2} of them = max rows[n=3].x.p / rows[arm=c].x.p; count rows[n=3].x.p", True),
        ("{617.2}x = max rows[n=3].x.p / rows[arm=c].x.p", False),
        ("{1,236} tokens = sum rows.x.p", False),
        ("{1,237} tokens = sum rows.x.p", False),  # right, and not on the page
    ],
)
def test_a_figure_that_is_another_is_found(line: str, is_right: bool) -> None:
    page = "1,235 tokens, 1,236 tokens; 617.3x, 2 of them; 617.2x"
    assert (wrong_figures(page, DOCUMENT, line) == []) is is_right
