"""Which answers are good enough."""

import pytest

from pilotfish.bench.load.slo import Slo, parse_slo
from pilotfish.errors import ConfigError


@pytest.mark.parametrize("texts", [["ttft:500,itl:50"], ["ttft:500", "itl:50"], ["ttft:500 itl:50.0"]])
def test_objectives_are_read_in_every_spelling(texts: list[str]) -> None:
    assert parse_slo(texts) == Slo(ttft=500, itl=50)


def test_vllms_name_of_the_end_to_end_latency_is_known() -> None:
    assert parse_slo(["e2el:3000", "tpot:20"]) == Slo(e2e=3000, tpot=20)


def test_no_objectives_are_none() -> None:
    assert parse_slo([]) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttf:500", "known are ttft, tpot, itl, e2e"),
        ("500", "known are"),
        ("ttft", "needs a limit in milliseconds"),
        ("ttft:", "needs a limit in milliseconds"),
        ("ttft:fast", "needs a limit in milliseconds"),
        ("ttft:0", "above 0"),
        ("ttft:nan", "above 0"),
        ("ttft:1,ttft:2", "given twice"),
        ("e2e:1,e2el:2", "given twice"),
    ],
)
def test_what_is_no_objective_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_slo([text])


def test_each_objective_counts(make_record) -> None:
    # TTFT 1 s, gaps 1 s and 2 s, end to end 4 s, 3 s for four further tokens.
    record = make_record([(1.0, 1), (2.0, 2), (4.0, 2)])
    assert Slo().is_met(record)
    assert Slo(ttft=1000, itl=2000, e2e=4000, tpot=750).is_met(record)
    assert not Slo(ttft=999).is_met(record)
    assert not Slo(itl=1999).is_met(record)
    assert not Slo(e2e=3999).is_met(record)
    assert not Slo(tpot=749).is_met(record)


def test_the_lag_of_the_client_counts_against_the_objective(make_record) -> None:
    assert not Slo(ttft=1000).is_met(make_record([(1.5, 1)], due_s=0.0, lag_s=0.6))


def test_a_failure_is_never_good(make_record) -> None:
    assert not Slo(ttft=1e9).is_met(make_record([(1.0, 1)], error_code="INTERNAL"))


def test_an_answer_of_one_token_has_no_gap_to_miss(make_record) -> None:
    assert Slo(itl=1, tpot=1).is_met(make_record([(1.0, 1)]))


def test_it_says_what_it_asks() -> None:
    assert str(Slo(ttft=500, e2e=2000)) == "ttft at most 500 ms, e2e at most 2000 ms"
