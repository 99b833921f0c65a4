"""Every value survives the way over the wire; what is no value is refused."""

import enum
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.errors import InvalidRequestError
from pilotfish.features import Features
from pilotfish.messages import (
    CloseSequence,
    Decode,
    Opened,
    OpenSequence,
    Predrafted,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
    join_plain,
)
from pilotfish.rpc import conversion
from pilotfish.rpc.draft_frames import DraftFrames
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.handshake import Welcome
from pilotfish.rpc.target_frames import MAX_JOINED_TOKENS, TargetFrames
from pilotfish.rpc.v1 import target_pb2, types_pb2
from pilotfish.step_table import StepTable
from pilotfish.types import (
    FinishReason,
    LoadReport,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    Timings,
    TokenLogprobs,
    TreeRequest,
)

uint32, uint64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def tuples(items: st.SearchStrategy, max_size: int = 4) -> st.SearchStrategy:
    return st.lists(items, max_size=max_size).map(tuple)


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32)


def values(kind: Any, **special: st.SearchStrategy) -> st.SearchStrategy:
    """Values of a struct; every field takes what its type allows on the wire, or what is special about it."""
    plain = {field.name: field for field in msgspec.structs.fields(kind) if field.name not in special}
    return st.builds(kind, **special, **{name: field_values(name, field.type) for name, field in plain.items()})


def field_values(name: str, kind: Any) -> st.SearchStrategy:
    if kind in SPECIAL:
        return SPECIAL[kind]
    arguments = get_args(kind)
    if type(None) in arguments:
        return st.none() | field_values(name, arguments[0])
    if arguments:  # a tuple of any length
        return tuples(field_values(name, arguments[0]))
    if isinstance(kind, enum.EnumMeta):
        return st.sampled_from(kind)
    if kind is int:
        return uint64 if name == "sequence_id" or name.endswith("_ns") else uint32
    return values(kind)


SPECIAL: dict[Any, st.SearchStrategy] = {
    float: floats(0, 1),
    str: st.text(max_size=20),
    bool: st.booleans(),
    SparseDistribution: st.lists(st.tuples(uint32, floats(0, 1)), max_size=4).map(
        lambda pairs: SparseDistribution(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
    ),
    Features: st.builds(
        lambda first, num_tokens, row: Features(first, num_tokens, num_tokens * row),
        uint32,
        st.integers(1, 3),
        st.binary(min_size=1, max_size=4),
    ),
    StepTable: st.dictionaries(uint32, uint64, max_size=4).map(
        lambda cells: StepTable(tuple(sorted(cells)), tuple(cells[rows] for rows in sorted(cells)))
    ),
}
SPECIAL[SamplingParams] = values(
    SamplingParams,
    temperature=floats(0, 100),
    top_p=floats(0.125, 1),
    repetition_penalty=floats(0.125, 10),
    presence_penalty=floats(-2, 2),
    frequency_penalty=floats(-2, 2),
    **dict.fromkeys(("typical_epsilon", "typical_delta", "tolerance_delta"), floats(0, 1)),
    logit_bias=tuples(st.tuples(uint32, floats(-100, 100))),
    seed=uint64,
    max_tokens=st.integers(1, 2**32 - 1),
    min_tokens=uint32,
    bad_words=tuples(st.lists(uint32, min_size=1, max_size=3).map(tuple)),
    num_logprobs=st.none() | st.integers(0, 20),
)
parents = tuples(st.integers(-1, 2**31 - 1))
opens, closes, errors = values(OpenSequence), values(CloseSequence), values(SequenceError)
prepared_drafts = st.builds(
    lambda base, verified, outcomes, draft, probs: Predrafted(
        *base, verified, tuple(n for n, _ in outcomes), tuple(t for _, t in outcomes), draft * len(outcomes), probs
    ),
    st.tuples(uint64, uint32),
    tuples(uint32),
    st.lists(st.tuples(uint32, uint32), min_size=1, max_size=3),
    tuples(uint32),
    tuples(SPECIAL[SparseDistribution]),
)
unpriced_trees = st.builds(TreeRequest, uint32, uint32)
decodes = values(Decode, tree=st.none() | unpriced_trees)
target_commands = st.one_of(opens, closes, values(Verify, parents=parents), decodes, prepared_drafts)
draft_commands = st.one_of(opens, closes, values(Propose))
target_events = st.one_of(errors, values(Opened), values(Verdict))
draft_events = st.one_of(errors, values(Proposal, parents=parents), prepared_drafts)


def requests_of(codec: FrameCodec, commands: list) -> list:
    """The items of a frame with the commands, after the wire."""
    frame = codec.request_frame_type()
    for command in commands:
        codec.add_request(frame, command)
    return codec.request_frame_type.FromString(frame.SerializeToString()).requests


def response_frame_of(codec: FrameCodec, events: list) -> Any:
    """A frame with the events; items of their own, as long as none is extended."""
    frame = codec.response_frame_type()
    for event in events:
        codec.add_response(frame, event, event.sequence_id)
    return frame


def after_the_wire(frame: Any) -> Any:
    return type(frame).FromString(frame.SerializeToString())


@pytest.mark.parametrize(("codec", "commands"), [(TargetFrames(), target_commands), (DraftFrames(), draft_commands)])
@given(data=st.data(), local_id=uint64)
def test_commands(codec: FrameCodec, commands: st.SearchStrategy, data: st.DataObject, local_id: int) -> None:
    sent = data.draw(st.lists(commands, max_size=4))
    received = requests_of(codec, sent)
    assert [codec.sequence_id(request) for request in received] == [command.sequence_id for command in sent]
    pairs = zip(received, sent, strict=True)
    assert [codec.command(request, command.sequence_id) for request, command in pairs] == sent
    assert all(codec.command(request, local_id).sequence_id == local_id for request in received)


@given(st.lists(target_events, max_size=4), values(LoadReport), values(Welcome))
def test_target_events(events: list, load: LoadReport, welcome: Welcome) -> None:
    codec = TargetFrames()
    frame = response_frame_of(codec, events)
    codec.set_load(frame, load)
    received = after_the_wire(frame)
    assert codec.events(received) == events
    assert codec.load(received) == load
    assert codec.welcome(received) is None
    first = after_the_wire(codec.welcome_frame(welcome, load))
    assert (codec.welcome(first), codec.load(first), codec.events(first)) == (welcome, load, [])


def test_who_knows_no_prices_sees_a_priced_tree_as_a_chain() -> None:
    (item,) = requests_of(DraftFrames(), [Propose(1, 3, (), 2, tree=TreeRequest(8, 4, 0.125))])
    assert item.propose.HasField("priced_tree")
    assert not item.propose.HasField("tree")


@given(st.lists(draft_events, max_size=4))
def test_draft_events(events: list) -> None:
    codec = DraftFrames()
    received = after_the_wire(response_frame_of(codec, events))
    assert codec.events(received) == events
    assert codec.load(received) is None


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=6), st.data())
def test_plain_steps_that_follow_one_another_are_told_as_one(
    steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """What comes out is the same as what join_plain makes of the steps."""
    codec, verdicts, length = TargetFrames(), [], 7
    for index, (num_tokens, is_timed) in enumerate(steps):
        verdicts.append(
            Verdict(
                5,
                length,
                0,
                0,
                tuple(range(num_tokens)),
                logprobs=tuple(TokenLogprobs(-float(token)) for token in range(num_tokens)),
                finish_reason=FinishReason.STOP if index == len(steps) - 1 else None,
                timings=Timings(3, 2) if is_timed else Timings(),
                features=data.draw(st.none() | SPECIAL[Features]) if index == len(steps) - 1 else None,
            )
        )
        length += num_tokens
    frame = codec.response_frame_type()
    response = codec.add_response(frame, verdicts[0], 5)
    assert all(codec.extend(response, verdict) for verdict in verdicts[1:])
    assert codec.events(after_the_wire(frame)) == [join_plain(verdicts)]


PLAIN = Verdict(1, 10, 0, 0, (1, 2))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(PLAIN, Verdict(1, 13, 0, 0, (3,)), id="a gap"),
        pytest.param(PLAIN, Verdict(1, 12, 1, 1, (3, 4)), id="a verified draft follows"),
        pytest.param(Verdict(1, 10, 1, 1, (1, 2)), Verdict(1, 12, 0, 0, (3,)), id="a verified draft comes first"),
        pytest.param(
            Verdict(1, 10, 0, 0, (1,), finish_reason=FinishReason.STOP), Verdict(1, 11, 0, 0, (2,)), id="an end"
        ),
        pytest.param(
            Verdict(1, 10, 0, 0, (1,), features=Features(0, 1, b"12")),
            Verdict(1, 11, 0, 0, (2,)),
            id="features",
        ),
        pytest.param(Opened(1, 0), PLAIN, id="no verdict first"),
        pytest.param(PLAIN, SequenceError(1, SequenceErrorCode.STALE, "", 12), id="no verdict second"),
        pytest.param(
            Verdict(1, 10, 0, 0, (1,) * MAX_JOINED_TOKENS), Verdict(1, 10 + MAX_JOINED_TOKENS, 0, 0, (2,)), id="enough"
        ),
    ],
)
def test_other_events_are_told_apart(first: Any, second: Any) -> None:
    codec = TargetFrames()
    frame = codec.response_frame_type()
    assert not codec.extend(codec.add_response(frame, first, 1), second)
    assert codec.events(frame) == [first]


def test_streams_carry_no_events_of_the_other_service() -> None:
    for codec, event in (
        (TargetFrames(), Proposal(1, 2, (3,))),
        (DraftFrames(), Opened(1, 0)),
        (DraftFrames(), Verdict(1, 2, 0, 0, (3,))),
    ):
        assert not codec.carries(event)


@pytest.mark.parametrize("number", [0, 9])
def test_unknown_enum_values_are_named(number: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"AcceptanceMode {number} is unknown here; known are COUPLED \(1\)"):
        conversion.sampling_from_proto(types_pb2.SamplingParams(top_p=1, max_tokens=1, acceptance=number))
    with pytest.raises(InvalidRequestError, match=f"SequenceErrorCode {number} is unknown"):
        conversion.error_from_proto(types_pb2.SequenceError(code=number))
    with pytest.raises(InvalidRequestError, match="FinishReason 9 is unknown"):
        conversion.finish_reason_from_proto(9)


def test_lopsided_distributions_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="2 token ids and 1 probabilities"):
        conversion.distribution_from_proto(types_pb2.SparseDistribution(token_ids=[1, 2], probs=[1.0]))


@pytest.mark.parametrize(
    "proto",
    [
        types_pb2.Features(num_tokens=2, data=b"abc"),
        types_pb2.Features(num_tokens=0, data=b"abc"),
        types_pb2.Features(num_tokens=2),
    ],
)
def test_nonsense_in_place_of_features_costs_no_verdict(proto: types_pb2.Features) -> None:
    verdict = target_pb2.Verdict(sequence_id=1, base_length=2, token_ids=[3], features=proto)
    assert TargetFrames().event(target_pb2.TargetResponse(verdict=verdict)) == Verdict(1, 2, 0, 0, (3,))


@pytest.mark.parametrize(
    "proto",
    [
        types_pb2.StepTable(),
        types_pb2.StepTable(rows=[1, 2], step_time_ns=[5]),
        types_pb2.StepTable(step_time_ns=[5, 6]),
        types_pb2.StepTable(rows=[2, 1], step_time_ns=[5, 6]),
        types_pb2.StepTable(rows=[2, 2], step_time_ns=[5, 6]),
    ],
)
def test_nonsense_in_place_of_a_step_table_costs_no_report(proto: types_pb2.StepTable) -> None:
    load = types_pb2.LoadReport(num_sequences_running=3, step_table=proto)
    assert TargetFrames().load(target_pb2.TargetResponseFrame(load=load)) == LoadReport(num_sequences_running=3)


@pytest.mark.parametrize(
    ("num_accepted", "own", "drafts"), [((), (), ()), ((0, 1), (5,), (7,)), ((0, 1), (5, 6), (7, 8, 9))]
)
def test_prepared_drafts_that_do_not_add_up_are_refused(
    num_accepted: tuple[int, ...], own: tuple[int, ...], drafts: tuple[int, ...]
) -> None:
    codec = DraftFrames()
    frame = codec.response_frame_type()
    codec.add_response(frame, Predrafted(1, 2, (3,), num_accepted, own, drafts), 1)
    with pytest.raises(InvalidRequestError, match="do not fit"):
        codec.events(frame)
