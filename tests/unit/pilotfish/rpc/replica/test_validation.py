import math

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import Command, Decode, OpenSequence, Predrafted, PredraftRequest, Propose, Verify
from pilotfish.rpc.replica.validation import check_command
from pilotfish.types import Limits, ModelInfo, SamplingParams, SparseDistribution, TreeRequest

MODEL = ModelInfo(model_id="small", tokenizer_fingerprint="", vocab_size=10, max_context_tokens=8)
LIMITS = Limits(max_draft_tokens=2, max_sequences=1)
GREEDY = SamplingParams(temperature=0)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (OpenSequence(1, (), GREEDY), "the prompt is empty"),
        (OpenSequence(1, (1,) * 8, GREEDY), "have 8 tokens; the context of small holds 8"),
        (OpenSequence(1, (1,) * 5, GREEDY, (1,) * 3), "have 8 tokens"),
        (OpenSequence(1, (10,), GREEDY), "prompt token id 10 is not in the vocabulary of 10"),
        (OpenSequence(1, (1,), GREEDY, (10,)), "output token id 10"),
        (OpenSequence(1, (1,), SamplingParams(logit_bias=((10, 1.0),))), "logit_bias token id 10"),
        (OpenSequence(1, (1,), SamplingParams(max_tokens=2), (1, 2)), "has 2 tokens already, of max_tokens 2"),
        (Propose(1, 8, (), 2), "context of 8 tokens is full"),
        (Verify(1, 3, (1, 1, 1)), "3 draft tokens; at most 2"),
        (Propose(1, 3, (), 2, tree=TreeRequest(3, 2)), "a tree of 3 draft tokens wanted; 1 to 2"),
        (Propose(1, 3, (), 2, tree=TreeRequest(0, 2)), "a tree of 0 draft tokens wanted"),
        (Decode(1, 3, 5, 2, tree=TreeRequest(2, 0)), "branching is 0"),
        (Propose(1, 3, (), 2, tree=TreeRequest(2, 2, 1.5)), "row_price is 1.5"),
        (Propose(1, 3, (), 2, tree=TreeRequest(2, 2, math.nan)), "row_price is nan"),
        (Verify(1, 3, (10,)), "draft token id 10"),
        (Verify(1, 3, (1, 2), (SparseDistribution((1,), (1.0,)),)), "2 draft tokens with 1 distributions"),
        (Verify(1, 3, (1,), (SparseDistribution((10,), (1.0,)),)), "token id of a draft distribution 10"),
        *(
            (Verify(1, 3, (3,), (SparseDistribution(token_ids, probs),)), "a draft distribution repeats a token or")
            for token_ids, probs in (
                ((3, 4), (1.0,)),
                ((3, 3), (0.5, 0.5)),
                ((3, 4), (0.5, 0.25)),
                ((3, 4), (1.5, -0.5)),
                ((3, 4), (0.5, float("nan"))),
                ((3, 4), (0.5, float("inf"))),
                ((), ()),
            )
        ),
        (Predrafted(1, 3, (), (0,), (1,), (1, 1, 1)), "1 drafts of 3 tokens were prepared"),
        (Predrafted(1, 3, (), (0,), (1,), (10,)), "draft token id 10"),
        (Predrafted(1, 3, (), (0,) * 1025, (1,) * 1025, (1,) * 1025), "1025 drafts of 1 tokens were prepared"),
        (Verify(1, 3, (1, 2), parents=(-1,)), "2 draft tokens with 1 parents"),
        (Verify(1, 3, (1, 2), parents=(-1, 1)), "it must come before it"),
        (Verify(1, 3, (1, 2), parents=(-2, 0)), "it must come before it"),
        (Decode(1, 3, 0), "num_tokens is 0"),
        (Decode(1, 3, 1, 3), "3 draft tokens wanted; 1 to 2"),
        (Propose(1, 3, (), 2, ahead=PredraftRequest(0, (0.5,))), "0 tokens ahead wanted"),
        (Propose(1, 3, (), 2, ahead=PredraftRequest(1025, (0.5,))), "1025 tokens ahead wanted; 1 to 1024"),
        (Propose(1, 3, (), 2, ahead=PredraftRequest(60, ())), "acceptance of each position"),
        (Propose(1, 3, (), 2, ahead=PredraftRequest(60, (1.5,))), "between 0 and 1"),
        (Propose(1, 3, (), 2, ahead=PredraftRequest(60, (float("nan"),))), "between 0 and 1"),
        (Propose(1, 3, (), 0), "0 draft tokens wanted; 1 to 2"),
        (Propose(1, 3, (), 3), "3 draft tokens wanted; 1 to 2"),
        (Propose(1, 3, (10,), 1), "token id 10"),
        (Propose(1, 1, (1, 2), 1), "2 new tokens cannot end at length 1"),
    ],
)
def test_others_are_told_what_is_wrong(command: Command, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_command(command, MODEL, LIMITS)
