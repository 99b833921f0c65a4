"""Distributions of lengths."""

import statistics
from random import Random

import pytest

from pilotfish.bench.load.workload import parse_lengths
from pilotfish.errors import ConfigError


def draws(text: str, count: int = 4000) -> list[int]:
    lengths, random = parse_lengths(text), Random(1)
    return [lengths.draw(random) for _ in range(count)]


@pytest.mark.parametrize("text", ["128", "fixed:128", " 128 "])
def test_a_fixed_length_is_always_the_same(text: str) -> None:
    assert set(draws(text, 10)) == {128}


def test_a_uniform_length_takes_both_ends_and_everything_between() -> None:
    assert set(draws("uniform:3-6")) == {3, 4, 5, 6}


def test_a_lognormal_length_has_its_median_and_its_spread() -> None:
    values = draws("lognormal:200,0.5")
    assert statistics.median(values) == pytest.approx(200, rel=0.03)
    # Mean of a lognormal: median * exp(sigma^2 / 2).
    assert statistics.fmean(values) == pytest.approx(200 * 1.1331, rel=0.03)


def test_a_lognormal_length_is_cut_where_told() -> None:
    values = draws("lognormal:200,0.5,300")
    assert max(values) == 300
    assert min(draws("lognormal:1,2")) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "x", "fixed:-1", "uniform:5", "uniform:6-3", "uniform:0-3", "lognormal:200", "lognormal:0,1"),
        *("lognormal:200,-1", "lognormal:200,1,0", "lognormal:200,1,2,3", "lognormal:nan,1", "normal:3,1"),
    ],
)
def test_what_is_no_distribution_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="uniform:LOW-HIGH"):
        parse_lengths(text)
