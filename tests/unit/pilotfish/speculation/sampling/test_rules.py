from __future__ import annotations

from pilotfish.speculation.sampling.rules import Rule, group, rule_of
from pilotfish.types import AcceptanceMode, SamplingParams


def test_temperature_0_is_greedy_whatever_the_mode():
    for mode in AcceptanceMode:
        assert rule_of(SamplingParams(temperature=0, acceptance=mode)) is Rule.GREEDY


def test_groups_by_rule_and_by_whether_the_logits_are_adjusted():
    samplings = [
        SamplingParams(),
        SamplingParams(temperature=0),
        SamplingParams(top_p=0.5),
        SamplingParams(presence_penalty=1),
        SamplingParams(acceptance=AcceptanceMode.REJECTION),
    ]
    assert group(samplings) == {
        (Rule.COUPLED, False): [0, 2],
        (Rule.GREEDY, False): [1],
        (Rule.COUPLED, True): [3],
        (Rule.REJECTION, False): [4],
    }
