import pytest

from pilotfish.config import DraftConfig
from pilotfish.drafter_registry import LOOKUPS
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.types import TreeRequest


@pytest.mark.parametrize("name", sorted(LOOKUPS))
def test_every_lookup_follows_the_configuration(name: str) -> None:
    tokens = [1, 2, 3, 4, 5, 6, 1, 2]
    assert len(lookup_of(name)(DraftConfig())("").propose(4).token_ids) == 0
    assert len(lookup_of(name)(DraftConfig(lookup_min_probability=1))("").propose(4).token_ids) == 0
    index = lookup_of(name)(DraftConfig(lookup_min_probability=0))("")
    index.append(tokens)
    assert index.propose(3).token_ids == (3, 4, 5)
    picky = lookup_of(name)(DraftConfig(lookup_min_probability=0.4))("")
    picky.append(tokens)
    assert picky.propose(3).token_ids == (3,)


def test_one_starter_makes_indexes_that_share_outputs_and_another_does_not() -> None:
    make_index = lookup_of("suffix")(DraftConfig())
    first = make_index("")
    first.append(range(20))
    first.finish(0)
    for make, expected in ((make_index, (7,)), (lookup_of("suffix")(DraftConfig()), ())):
        index = make("")
        index.append([5, 6])
        assert index.propose(1) is not None
        assert index.propose(1).token_ids == expected


def test_what_one_salt_has_said_is_found_by_the_same_salt_alone() -> None:
    make_index = lookup_of("suffix")(DraftConfig())
    for salt, start in (("", 100), ("mine", 200), ("yours", 300)):
        said = make_index(salt)
        said.append([5, 6, *range(start, start + 10)])
        said.finish(0)
    for salt, expected in (("mine", (200, 201)), ("yours", (300, 301)), ("", (100, 101)), ("nobody's", ())):
        index = make_index(salt)
        index.append([4, 5, 6])
        index.propose(1)
        index.propose(1)
        index.propose(1)
        assert index.propose(2).token_ids == expected
        tree = index.propose(2, TreeRequest(max_nodes=8, branching=4))
        assert set(tree.token_ids) == set(expected)
        index.append([200, 300])
        index.truncate(3)
        assert index.propose(2).token_ids == expected
