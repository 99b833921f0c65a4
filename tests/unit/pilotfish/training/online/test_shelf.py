"""What the trainer knows of the texts in the ring."""

from pathlib import Path

import pytest

from pilotfish.features import Features
from pilotfish.learning.record import LearnedText
from pilotfish.learning.ring import Ring
from pilotfish.training.online.shelf import Shelf


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path / "ring", max_bytes=100_000, max_age_s=60, key=None)


def add(ring: Ring, request_id: str, at: float = 1000.0, prompt: str = "") -> None:
    features = Features(0, 4, b"12" * 4)
    ring.append(LearnedText(request_id, "kind", 1, (1, 2, 3, 3), features, finished_at=at, prompt=prompt))


def test_all_texts_of_a_request_are_on_one_side_and_the_share_is_kept(ring: Ring) -> None:
    for number in range(200):
        add(ring, f"request {number // 2}", at=1000 + number / 10)
    shelf = Shelf(ring, held_out_share=0.3)
    shelf.refresh(1020)
    learned, held_out = ({text.request for text in texts} for texts in (shelf.to_learn, shelf.held_out))
    assert len(learned) + len(held_out) == 100
    assert not learned & held_out
    assert 20 <= len(held_out) <= 40


def test_what_is_new_counts_until_a_candidate_has_learned_from_it(ring: Ring) -> None:
    shelf = Shelf(ring, held_out_share=1e-9)
    add(ring, "a", at=1000)
    add(ring, "b", at=1001)
    shelf.refresh(1001)
    assert shelf.num_new_tokens == 6
    assert shelf.num_come_tokens({"kind": 2}) == 1.5
    assert len(shelf.unseen_since(1000)) == 1
    shelf.used(shelf.to_learn, 2)
    assert (shelf.num_new_tokens, len(shelf.to_learn)) == (0, 2)
    assert shelf.unseen_since(0) == []
    shelf.used(shelf.to_learn, 2)
    assert shelf.to_learn == ring.paths() == []


def test_what_others_delete_and_what_is_too_old_is_gone(ring: Ring) -> None:
    shelf = Shelf(ring, held_out_share=1e-9)
    for at, name in ((1000, "old"), (1050, "forgotten"), (1050, "kept")):
        add(ring, name, at=at)
    shelf.refresh(1050)
    ring.forget("forgotten")
    shelf.refresh(1070)
    assert [text.finished_at for text in shelf.to_learn] == [1050]
    assert (shelf.num_new_tokens, shelf.num_come_tokens({})) == (3, 9)


def test_tokens_count_by_answers_to_learn_from_and_fade(ring: Ring) -> None:
    for share, counts in ((1e-9, {2: 1, 3: 2}), (1 - 1e-9, {})):
        shelf = Shelf(ring, held_out_share=share)
        ring.remove(ring.paths())
        add(ring, "a")
        shelf.refresh(1000)
        shelf.refresh(1000)
        assert shelf.counts == counts
    shelf = Shelf(ring, held_out_share=1e-9)
    shelf.refresh(1000)
    shelf.fade()
    assert shelf.counts == {2: 0.5, 3: 1.0}
    for _ in range(10):
        shelf.fade()
    assert shelf.counts == {}


def test_answers_to_one_prompt_are_on_one_side_and_are_judged_by_once(ring: Ring) -> None:
    for number in range(60):
        add(ring, f"request {number}", at=1000 + number / 10, prompt=f"{number % 20 * 2**59:016x}")
    shelf = Shelf(ring, held_out_share=0.5)
    shelf.refresh(1010)
    learned, held_out = ({text.prompt for text in texts} for texts in (shelf.to_learn, shelf.held_out))
    assert not learned & held_out
    assert len(shelf.held_out) == len(held_out) == 16
    assert min(text.finished_at for text in shelf.held_out) == 1004.0
    assert len(shelf.to_learn) == 12
    assert len(shelf.unseen_since(0)) == 20
