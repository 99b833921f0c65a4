"""What the two ends of a stream say to each other: sensible frames, damaged ones, and nonsense."""

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import shared.checkout  # noqa: F401  # finds tests.support
from google.protobuf.message import Message
from hypothesis import strategies as st

from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.handshake import PROTOCOL_VERSION, Hello, Welcome
from pilotfish.types import (
    AcceptanceMode,
    FinishReason,
    Grammar,
    GrammarKind,
    Limits,
    LoadReport,
    ModelInfo,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    TokenLogprobs,
    TreeRequest,
)
from tests.support.message_strategies import messages
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE

T = TypeVar("T")
NUM_SEQUENCES = 4
LIMITS = Limits(max_draft_tokens=8, max_sequences=NUM_SEQUENCES)
SMALL = st.integers(0, 9)
IDS = st.integers(1, NUM_SEQUENCES)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 16), st.binary(max_size=8)), min_size=1, max_size=3)
"""Each: where, how many bytes go, and what comes in their place."""


def tuples(values: st.SearchStrategy[T], **sizes: int) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(values, **{"max_size": 6, **sizes}).map(tuple)


TOKENS = tuples(st.integers(0, PRINTABLE_VOCAB_SIZE - 1))
GRAMMARS = st.sampled_from(
    [
        Grammar(GrammarKind.JSON_OBJECT),
        Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object", "properties": {"a": {"type": "integer"}}}'),
        Grammar(GrammarKind.REGEX, "[ab]+c?"),
        Grammar(GrammarKind.LARK, 'start: "a" start | "b"'),
    ]
)
SAMPLING = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    top_k=SMALL,
    top_p=st.sampled_from([1.0, 0.5]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.1]),
    logit_bias=tuples(st.tuples(st.integers(0, PRINTABLE_VOCAB_SIZE - 1), st.floats(-9, 9)), max_size=2),
    acceptance=st.sampled_from(AcceptanceMode),
    max_tokens=st.integers(1, 100),
    stop_token_ids=TOKENS,
    allowed_token_ids=TOKENS,
    num_logprobs=st.none() | st.integers(0, 5),
    grammar=st.none() | st.none() | GRAMMARS,
)
TREES = st.none() | st.builds(TreeRequest, st.integers(1, 8), st.integers(1, 3))
WANTED_FEATURES = st.none() | st.builds(FeatureRequest, SMALL)
FEATURES = st.none() | st.builds(Features, SMALL, st.integers(1, 3), st.binary(max_size=12))
AHEAD = st.none() | st.builds(PredraftRequest, st.integers(1, 20), tuples(st.floats(0, 1), min_size=1))
PROBS = st.just(SparseDistribution((1, 2), (0.5, 0.5)))
LOGPROBS = tuples(st.builds(TokenLogprobs, st.floats(-9, 0), st.just((1, 2)), st.just((-0.5, -1.0))), max_size=2)


@st.composite
def commands(draw: st.DrawFn, service: str) -> list[Command]:
    """Mostly on sequences that are open, where they stand."""
    lengths: dict[int, int] = {}
    said: list[Command] = []
    for sequence_id in draw(st.lists(IDS, min_size=1, max_size=16)):
        if sequence_id not in lengths:
            prompt = draw(tuples(st.integers(0, PRINTABLE_VOCAB_SIZE - 1), min_size=1, max_size=60))
            said.append(OpenSequence(sequence_id, prompt, draw(SAMPLING), draw(st.just(()) | TOKENS)))
            lengths[sequence_id] = len(prompt) + len(said[-1].output_token_ids)
            continue
        place = max(0, lengths[sequence_id] + draw(st.sampled_from([0, 0, 0, 0, 1, 2, -1])))
        lengths[sequence_id] += draw(st.integers(0, 4))
        if draw(st.integers(0, 9)) == 0:
            said.append(CloseSequence(sequence_id))
            del lengths[sequence_id]
        elif service == "draft":
            new = draw(TOKENS)[:place]
            options = draw(FEATURES), draw(TREES), draw(AHEAD), draw(st.booleans())
            said.append(Propose(sequence_id, place, new, draw(SMALL), *options))
        elif draw(st.integers(0, 3)) == 0:
            said.append(Predrafted(sequence_id, place, draw(TOKENS), (0, 1), (1, 2), (3, 4, 5, 6)))
        elif draw(st.booleans()):
            said.append(
                Decode(sequence_id, place, draw(st.integers(1, 9)), draw(SMALL), draw(WANTED_FEATURES), draw(TREES))
            )
        else:
            drafts = draw(TOKENS)
            probs = draw(st.just(()) | st.just((SparseDistribution((1, 2), (0.5, 0.5)),) * len(drafts)))
            parents = draw(st.just(()) | st.just(tuple(draw(st.integers(-1, row - 1)) for row in range(len(drafts)))))
            said.append(Verify(sequence_id, place, drafts, probs, parents, draw(WANTED_FEATURES)))
    return said


def events(service: str) -> st.SearchStrategy[Event]:
    """Events of a replica to sequences that an orchestrator has opened there."""
    failed = st.builds(SequenceError, IDS, st.sampled_from(SequenceErrorCode), st.text(max_size=9), SMALL)
    if service == "target":
        finish = st.none() | st.none() | st.sampled_from(FinishReason)
        verdict = st.builds(
            Verdict,
            IDS,
            SMALL,
            SMALL,
            SMALL,
            TOKENS,
            LOGPROBS,
            finish,
            draft_depth=SMALL,
            features=FEATURES,
            num_next_draft_tokens=SMALL,
        )
        return st.builds(Opened, IDS, SMALL) | verdict | verdict | failed
    proposal = st.builds(Proposal, IDS, SMALL, TOKENS, tuples(PROBS), parents=tuples(st.integers(-1, 3)))
    prepared = st.builds(Predrafted, IDS, SMALL, TOKENS, st.just((0, 1)), st.just((1, 2)), st.just((3, 4, 5, 6)))
    return proposal | prepared | failed


@st.composite
def requests(draw: st.DrawFn, codec: FrameCodec) -> list[bytes]:
    """All that one orchestrator says, from its hello on."""
    version = draw(st.sampled_from([PROTOCOL_VERSION] * 20 + [PROTOCOL_VERSION + 1]))
    hello = codec.hello_frame(Hello(peer="fuzz", protocol_version=version))
    said = draw(commands(codec.service))
    frames = _framed(draw, codec.request_frame_type, said, codec.add_request)
    return _damaged(draw, [hello, *frames])


@st.composite
def responses(draw: st.DrawFn, codec: FrameCodec) -> list[bytes]:
    """All that one replica says, from its welcome on."""
    model = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=96, max_context_tokens=128)
    welcome = codec.welcome_frame(Welcome(model=model, limits=LIMITS, replica_id="fuzzed"), LoadReport())
    said = draw(st.lists(events(codec.service), max_size=16))
    frames = _framed(
        draw, codec.response_frame_type, said, lambda frame, event: codec.add_response(frame, event, event.sequence_id)
    )
    return _damaged(draw, [welcome, *frames])


def _framed(draw: st.DrawFn, kind: type[Any], items: Sequence[Any], add: Callable[[Any, Any], object]) -> list[Any]:
    frames, start = [], 0
    while start < len(items):
        frames.append(kind())
        size = draw(st.integers(1, 4))
        for item in items[start : start + size]:
            add(frames[-1], item)
        start += size
    return frames


def _damaged(draw: st.DrawFn, frames: Sequence[Any]) -> list[bytes]:
    """Most as they are; some with fields or bytes that do not belong there."""
    result: list[bytes] = []
    for frame in frames:
        choice = draw(st.integers(0, 19))
        if choice == 1:
            for item in items_of(frame):
                spoil(item, draw(messages(type(item))))
        elif choice == 2:
            frame.MergeFrom(draw(messages(type(frame))))
        data = frame.SerializeToString()
        result.append(garbled(data, draw(EDITS)) if choice == 3 else data)
    return result


def items_of(frame: Any) -> list[Any]:
    """The commands or events of a frame, in their own types."""
    held = frame.requests if "requests" in frame.DESCRIPTOR.fields_by_name else frame.responses
    return [getattr(each, each.WhichOneof("item")) for each in held if each.WhichOneof("item")]


def spoil(item: Any, odd: Message) -> None:
    """Fields of another one of the same type; it stays on its sequence."""
    sequence_id = item.sequence_id
    item.MergeFrom(odd)
    item.sequence_id = sequence_id


def garbled(data: bytes, edits: Sequence[tuple[float, int, bytes]]) -> bytes:
    for place, size, put_in in edits:
        start = int(place * len(data))
        data = data[:start] + put_in + data[start + size :]
    return data


EDGES = [0, 2**31, 2**32, 2**53, 2**63, 2**64, 10**29, 0.5, -0.0, 1e-46, 5e-324, 3.5e38, 1.7e308, 123456.789]
NUMBERS = (
    st.integers() | st.floats() | st.builds(lambda edge, step: edge + step, st.sampled_from(EDGES), st.integers(-1, 1))
)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=9) | st.sampled_from(["", "\ud800", "\x00", "a" * 300])
STRANGE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DEPTHS = (20, 400, 990, 20_000)
RAW = [
    *["NaN", "1e400", "-1e400", "0x1", "01", "1.", ".5", "+1", "-", "nul", "'a'", "//", ",", "{", "[", '"'],
    *('"\\ud800"', '"\\udfff\\ud800"', '"\\x"', '"\t"', '1, "n": 2, "n": 3', '"a", "messages": []', "9" * 400),
    *(opening * depth + "1" + closing * depth for opening, closing in ("[]", ('{"a":', "}")) for depth in DEPTHS),
    *('"' + character * size + '"' for character in "aé😀 " for size in (1000, 100_000)),
]
"""JSON, or what passes for it, as it is to be written."""
_PLACE = "\x00raw"
"""Where it is to stand."""


@st.composite
def planted(draw: st.DrawFn, document: Any, keys: Sequence[str]) -> Any:
    """One place of a document is another: its value, its key, whether it is there. keys: some that may be new."""
    document = copy.deepcopy(document)
    holders = [document]
    for holder in holders:  # which grows meanwhile
        values = holder.values() if isinstance(holder, dict) else holder
        holders += [value for value in values if isinstance(value, dict | list)]
    holder = draw(st.sampled_from(holders))
    places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    strange = st.just(_PLACE) | STRANGE | STRANGE
    what = draw(st.integers(0, 4))
    if isinstance(holder, dict) and (what == 0 or not places):
        holder[draw(st.sampled_from(keys) | TEXTS)] = draw(strange)
    elif places:
        place = draw(st.sampled_from(places))
        if what == 1:
            del holder[place]
        else:
            holder[place] = [holder[place]] * draw(st.sampled_from([1, 2, 20])) if what == 2 else draw(strange)
    return document


@st.composite
def written(draw: st.DrawFn, document: Any) -> bytes:
    """The document as JSON."""
    text = json.dumps(document, ensure_ascii=draw(st.integers(0, 9)) > 0)
    place = json.dumps(_PLACE)
    if place in text:
        text = text.replace(place, draw(st.sampled_from(RAW)))
    return text.encode("utf-8", "surrogatepass")
