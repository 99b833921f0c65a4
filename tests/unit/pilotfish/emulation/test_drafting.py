"""The emulated drafter: token by token, and ahead of the target."""

from pilotfish.emulation.drafting import EmulatedDrafting
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.messages import AheadRequest, PreparedDrafts, Proposal, Propose
from pilotfish.types import AcceptanceMode, SamplingParams

MODEL = HashLanguageModel()
GREEDY = SamplingParams(temperature=0)
PROMPT = [3, 1, 4, 1, 5]
AHEAD = AheadRequest(60, (0.8,))
K = 5


Drafts = Proposal | PreparedDrafts


def drain(drafting: EmulatedDrafting) -> list[list[Drafts]]:
    """What comes of each step."""
    steps = []
    while drafting.has_work:
        steps.append(drafting.step())
    return steps


def drafted(committed: list[int], num_tokens: int = K, acceptance: float = 0.8, sampling=GREEDY) -> tuple[int, ...]:
    """What is proposed when it is asked for."""
    drafting = EmulatedDrafting(MODEL, acceptance)
    drafting.propose(Propose(1, len(committed), (), num_tokens), committed, sampling)
    return drain(drafting)[-1][0].draft_token_ids


def ahead_of(
    committed: list[int], drafting: EmulatedDrafting, **changes
) -> tuple[Proposal, dict[tuple[int, ...], tuple[int, ...]]]:
    """The proposal on the committed tokens, and the drafts that are prepared, by outcome."""
    sampling = changes.pop("sampling", GREEDY)
    drafting.propose(Propose(1, len(committed), (), K, **{"ahead": AHEAD, **changes}), committed, sampling)
    proposal, *prepared = (event for step in drain(drafting) for event in step)
    return proposal, {outcome: event.draft(outcome).draft_token_ids for event in prepared for outcome in event.outcomes}


def test_what_is_prepared_is_what_would_be_proposed() -> None:
    for sampling in (GREEDY, SamplingParams(seed=7), SamplingParams(seed=7, acceptance=AcceptanceMode.REJECTION)):
        proposal, prepared = ahead_of(PROMPT, EmulatedDrafting(MODEL, 0.8), sampling=sampling)
        assert len(prepared) == 12
        for outcome, draft in prepared.items():
            assert outcome[:-1] == proposal.draft_token_ids[: len(outcome) - 1]
            assert draft == drafted([*PROMPT, *outcome], sampling=sampling)


def test_a_proposal_goes_before_what_is_drafted_ahead() -> None:
    drafting = EmulatedDrafting(MODEL, 0.8)
    drafting.propose(Propose(1, len(PROMPT), (), K, ahead=AHEAD), PROMPT, GREEDY)
    for _ in range(K + 2):
        drafting.step()
    assert drafting.step_size.num_tokens == 12
    drafting.propose(Propose(2, 3, (), 2), [1, 2, 3], GREEDY)
    assert drafting.step_size.num_tokens == 1
    assert [proposal.sequence_id for _ in range(2) for proposal in drafting.step()] == [2]
    assert drafting.step_size.num_tokens == 12


def test_asked_for_what_it_has_prepared_it_answers_at_once() -> None:
    drafting = EmulatedDrafting(MODEL, 0.8)
    _, prepared = ahead_of(PROMPT, drafting)
    outcome = list(prepared)[3]
    committed = [*PROMPT, *outcome]
    drafting.propose(Propose(1, len(committed), outcome, K), committed, GREEDY)
    ((answer,),) = drain(drafting)
    assert answer == Proposal(1, len(committed), prepared[outcome])
