"""Texts of the traffic as samples: the verified tokens are the labels."""

import pytest
import torch

from pilotfish.features import Features
from pilotfish.learning.record import LearnedText
from pilotfish.models.feature_codec import encode_features
from pilotfish.training.online.samples import sample_of

HIDDEN = 8
TOKENS = (5, 6, 7, 8, 9, 4)
VALUES = torch.randn(6, 3 * HIDDEN, generator=torch.Generator().manual_seed(0))


def text(
    prompt_len: int, *, tokens: tuple[int, ...] = (5, 6, 7, 8, 9, 4), features: Features | None = None
) -> LearnedText:
    return LearnedText("id", "kind", prompt_len, tokens, features or encode_features(VALUES, 100))


def test_each_row_is_labelled_with_the_token_that_follows() -> None:
    sample = sample_of(text(3), HIDDEN)
    assert sample.prompt_len == 3
    assert sample.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert sample.choices.tolist() == [-1, -1, 8, 9, 4]
    assert sample.num_answer_tokens == 2
    assert not sample.has_hidden
    assert sample.last_hidden.shape == (5, HIDDEN)
    torch.testing.assert_close(sample.features, VALUES[:5].bfloat16())


def test_a_text_without_its_prompt_is_learned_from_its_first_token_on() -> None:
    sample = sample_of(text(0), HIDDEN)
    assert sample.prompt_len == 1
    assert sample.choices.tolist() == [6, 7, 8, 9, 4]


def test_int8_features_are_near_the_true_ones() -> None:
    sample = sample_of(text(2, features=encode_features(VALUES, 0, num_int8_layers=3)), HIDDEN)
    torch.testing.assert_close(sample.features.float(), VALUES[:5], atol=0.03, rtol=0.02)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (text(0, tokens=(5,)), "1 tokens decide nothing"),
        (text(0, tokens=(5, 6, 7)), "features of 6 tokens, and 3 tokens"),
        (text(0, features=Features(0, 6, b"12345678" * 6)), "bytes for 6 tokens"),
    ],
)
def test_texts_that_decide_nothing_or_do_not_fit_are_refused(broken: LearnedText, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_of(broken, HIDDEN)
