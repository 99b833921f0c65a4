"""The stream that a drafter learns from: no prompt twice, and what is made of the answers."""

from itertools import islice
from xml.etree import ElementTree as ET

import pytest
from learning_stream.minutes import Asked, acceptance_length, drafted_ratio, rate_ratio
from learning_stream.plot import Point, svg
from learning_stream.prompts import KINDS, Kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_prompt_comes_twice_and_a_seed_repeats_them(kind: Kind) -> None:
    prompts = list(islice(kind.prompts(1), 2000))
    assert len(set(prompts)) == 2000
    assert prompts[:5] == list(islice(kind.prompts(1), 5))
    assert prompts[:5] != list(islice(kind.prompts(2), 5))
    messages = kind.messages(prompts[0])
    assert messages[0]["role"] == "system"
    assert messages[-1] == {"role": "user", "content": prompts[0]}


def asked(num_rounds: tuple[int, int], seconds: tuple[float, float]) -> Asked:
    num_accepted = (40 - num_rounds[0], 40 - num_rounds[1])
    return Asked(0, 0, "chat", False, (40, 40), num_rounds, num_accepted, (60, 60), seconds, False, 1)


def test_lengths_and_speeds_are_those_of_all_rounds() -> None:
    both = [asked((20, 10), (2.0, 1.0)), asked((20, 20), (2.0, 2.0))]
    assert acceptance_length(both, 0) == 2.0
    assert acceptance_length(both, 1) == pytest.approx(80 / 30)
    assert rate_ratio(both) == pytest.approx(4 / 3)
    assert drafted_ratio(both) == pytest.approx(4 / 3)
    assert (acceptance_length([], 0), rate_ratio([]), drafted_ratio([])) == (0.0, 0.0, 0.0)


def test_the_plot_is_a_picture_with_a_line_for_each_stack() -> None:
    root = ET.fromstring(svg([Point(0.4, "chat", 2.0, 2.1), Point(1.2, "sql", 2.0, 3.0)], [0.7], 2.0))
    lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [2, 2]
