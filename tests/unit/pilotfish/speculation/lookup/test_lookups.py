import pytest

from pilotfish.config import DraftConfig
from pilotfish.speculation.lookup.lookups import LOOKUPS


@pytest.mark.parametrize("name", sorted(LOOKUPS))
def test_every_lookup_follows_the_configuration(name: str) -> None:
    tokens = [1, 2, 3, 4, 5, 6, 1, 2]
    assert len(LOOKUPS[name](DraftConfig())().propose(4).token_ids) == 0
    assert len(LOOKUPS[name](DraftConfig(lookup_min_probability=1))().propose(4).token_ids) == 0
    index = LOOKUPS[name](DraftConfig(lookup_min_probability=0))()
    index.append(tokens)
    assert index.propose(3).token_ids == (3, 4, 5)
    picky = LOOKUPS[name](DraftConfig(lookup_min_probability=0.4))()
    picky.append(tokens)
    assert picky.propose(3).token_ids == (3,)


def test_one_starter_makes_indexes_that_share_outputs_and_another_does_not() -> None:
    make_index = LOOKUPS["suffix"](DraftConfig())
    first = make_index()
    first.append(range(20))
    first.finish(0)
    for make, expected in ((make_index, (7,)), (LOOKUPS["suffix"](DraftConfig()), ())):
        index = make()
        index.append([5, 6])
        assert index.propose(1) is not None
        assert index.propose(1).token_ids == expected
