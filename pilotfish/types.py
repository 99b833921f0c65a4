"""The vocabulary that every part shares: enums and values, no behaviour beyond validation."""

from __future__ import annotations

import enum
import math

import msgspec

from pilotfish.errors import InvalidRequestError
from pilotfish.step_table import StepTable

MAX_LOGPROBS = 20
"""Likeliest tokens a request may ask log-probabilities of (the limit of the OpenAI API)."""
MAX_SEED = 2**64 - 1
MAX_TOP_K = 2**32 - 1
"""The largest top_k as it travels; keeps all tokens of any vocabulary."""

_MIN_FLOAT32, _MAX_FLOAT32 = 2.0**-149, (2 - 2.0**-23) * 2.0**127
"""Bounds of positive sampling parameters as they travel: others would become 0 or infinite."""
_MIN_TEXT = f"{_MIN_FLOAT32:.2g} (the smallest 32-bit float)"
_MAX_TEXT = f"{_MAX_FLOAT32:.2g} (the largest)"

BLOCK_SIZE = 16
"""Tokens of a KV block, and of what prefixes are compared by. Key lengths in whole blocks are also what keeps SDPA
bit-exact."""


class TokenOrigin(enum.IntEnum):
    """Where an output token came from. Values equal pilotfish.v1.TokenOrigin."""

    PLAIN = 1
    ACCEPTED = 2
    RECOVERED = 3
    BONUS = 4
    GRAMMAR = 5


class FinishReason(enum.IntEnum):
    """Why a sequence ended. Values equal pilotfish.v1.FinishReason."""

    STOP = 1
    LENGTH = 2
    CANCELLED = 3


class AcceptanceMode(enum.IntEnum):
    """How draft tokens are accepted. Values equal pilotfish.v1.AcceptanceMode."""

    COUPLED = 1
    REJECTION = 2
    TYPICAL = 3
    TOLERANCE = 4

    @property
    def is_lossy(self) -> bool:
        """Whether the output is not the target's own: see speculation/sampling/lossy.py."""
        return self in (AcceptanceMode.TYPICAL, AcceptanceMode.TOLERANCE)


class GrammarKind(enum.IntEnum):
    """How a grammar is written. Values equal pilotfish.v1.GrammarKind."""

    JSON_SCHEMA = 1
    JSON_OBJECT = 2
    REGEX = 3
    LARK = 4


class SequenceErrorCode(enum.IntEnum):
    """Why one sequence failed. Values equal pilotfish.v1.SequenceErrorCode."""

    UNKNOWN_SEQUENCE = 1
    STALE = 2
    INVALID = 3
    RESOURCE_EXHAUSTED = 4
    UNAVAILABLE = 5
    INTERNAL = 6


class Grammar(msgspec.Struct, frozen=True, array_like=True):
    """What the whole output must be; tokens that it forbids are impossible."""

    kind: GrammarKind
    text: str = ""
    """A JSON schema, a regular expression, or a Lark grammar of llguidance's dialect; empty for any JSON object."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters, every value concrete; out-of-range values raise InvalidRequestError.

    Applied in this order on both sides: penalties, logit bias, grammar and allowed_token_ids, min_tokens and bad_words,
    temperature, top-k, top-p, min-p.
    """

    temperature: float = 1.0
    """0 is greedy: exact argmax, whatever the other parameters that only reshape the tail."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of likeliest tokens whose probability reaches top_p."""
    min_p: float = 0.0
    """Drop tokens less likely than min_p times the likeliest."""
    repetition_penalty: float = 1.0
    """CTRL's (1909.05858): divides positive and multiplies negative logits of tokens seen in prompt or output."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of every token that is in the output."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence in the output."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, addend) pairs."""
    seed: int = 0
    """Keys every random number of the sequence, with the token's position."""
    acceptance: AcceptanceMode = AcceptanceMode.COUPLED
    typical_epsilon: float = 0.09
    """Parameter of acceptance `typical`, as is typical_delta; Medusa's defaults. See speculation/sampling/lossy.py."""
    typical_delta: float = 0.3
    tolerance_top_k: int = 10
    """Parameter of acceptance `tolerance`, as is tolerance_delta; TensorRT-LLM's defaults."""
    tolerance_delta: float = 0.6
    max_tokens: int = 256
    """Output tokens at most."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the sequence, the model's own end tokens included; part of the output."""
    num_logprobs: int | None = None
    """None: no log-probabilities; 0: the chosen token's; n: also the n likeliest."""
    grammar: Grammar | None = None
    """None: the output is free."""
    min_tokens: int = 0
    """Least output tokens: as long as there are fewer, tokens of stop_token_ids are impossible."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens that the output does not hold: behind the others of one, its last token is impossible."""
    allowed_token_ids: tuple[int, ...] = ()
    """The only tokens that the output may consist of; empty: all are allowed."""

    def __post_init__(self) -> None:
        # `not (a <= x)` instead of `x < a`: NaN fails every comparison and must be refused.
        bounds = f"between {_MIN_TEXT} and {_MAX_TEXT}"
        is_temperature = self.temperature == 0 or _MIN_FLOAT32 <= self.temperature <= _MAX_FLOAT32
        is_bias = all(abs(bias) <= _MAX_FLOAT32 and token_id >= 0 for token_id, bias in self.logit_bias)
        is_logprobs = self.num_logprobs is None or 0 <= self.num_logprobs <= MAX_LOGPROBS
        checks = (
            ("temperature", is_temperature, f"0, or {bounds}"),
            ("top_k", 0 <= self.top_k <= MAX_TOP_K, f"between 0 (all tokens) and {MAX_TOP_K}"),
            ("top_p", _MIN_FLOAT32 <= self.top_p <= 1, f"between {_MIN_TEXT} and 1"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("repetition_penalty", _MIN_FLOAT32 <= self.repetition_penalty <= _MAX_FLOAT32, f"{bounds}; 1 is off"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "between -2 and 2"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "between -2 and 2"),
            ("typical_epsilon", 0 <= self.typical_epsilon <= 1, "between 0 and 1"),
            ("typical_delta", 0 <= self.typical_delta <= 1, "between 0 and 1"),
            ("tolerance_delta", 0 <= self.tolerance_delta <= 1, "between 0 and 1"),
            ("tolerance_top_k", 0 <= self.tolerance_top_k <= MAX_TOP_K, f"between 0 and {MAX_TOP_K}"),
            ("seed", 0 <= self.seed <= MAX_SEED, "between 0 and 2^64 - 1"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("min_tokens", self.min_tokens >= 0, "at least 0"),
            ("bad_words", all(self.bad_words), "sequences of at least one token"),
            ("num_logprobs", is_logprobs, f"between 0 and {MAX_LOGPROBS}"),
            ("logit_bias", is_bias, "finite 32-bit floats on token ids"),
        )
        for name, holds, allowed in checks:
            if not holds:
                param = name.removeprefix("num_")  # as clients call it
                value = str(getattr(self, name))[:100]
                raise InvalidRequestError(f"{param} is {value}; it must be {allowed}", param=param)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        """Whether the logits depend on the tokens before them through penalties."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def needs_history(self) -> bool:
        """Whether the logits depend on the tokens before them otherwise than through a grammar."""
        return self.has_penalties or self.min_tokens > 0 or bool(self.bad_words)


class SparseDistribution(msgspec.Struct, frozen=True, array_like=True):
    """A draft distribution cut to its likeliest tokens and renormalised: probs sum to 1.

    The draft token was sampled from exactly these pairs.
    """

    token_ids: tuple[int, ...]
    probs: tuple[float, ...]

    @property
    def is_sound(self) -> bool:
        """Whether exact acceptance can stand on it: distinct tokens with probabilities that sum to 1."""
        return (
            len(set(self.token_ids)) == len(self.token_ids) == len(self.probs)
            and min(self.probs, default=-1.0) >= 0
            and math.isclose(sum(self.probs), 1.0, abs_tol=1e-3)  # they are float32; false for NaN too
        )


class TreeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Allows a draft to branch; see pilotfish.v1.TreeRequest."""

    max_nodes: int
    """Draft tokens at most, over all branches."""
    branching: int
    """Candidates of a node, and nodes that each level expands, at most."""
    row_price: float = 0.0
    """See pilotfish.v1.PricedTree; 0: the drafter decides alone which nodes are worth their rows."""

    def within(self, max_nodes: int) -> TreeRequest:
        """The same, with at most so many nodes."""
        return TreeRequest(min(self.max_nodes, max_nodes), self.branching, self.row_price)

    def at(self, row_price: float) -> TreeRequest:
        """The same, at this price."""
        return TreeRequest(self.max_nodes, self.branching, row_price)


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities of one output token under the target's unmodified distribution."""

    logprob: float
    top_token_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()

    def first(self, num_logprobs: int) -> TokenLogprobs:
        """The same, with the likeliest tokens cut to num_logprobs."""
        return TokenLogprobs(self.logprob, self.top_token_ids[:num_logprobs], self.top_logprobs[:num_logprobs])


class Timings(msgspec.Struct, frozen=True, array_like=True):
    """Where the time of one result went on the replica."""

    queue_time_ns: int = 0
    compute_time_ns: int = 0


NO_TIMINGS = Timings()
"""No times are known."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica serves; see pilotfish.v1.ModelInfo."""

    model_id: str
    tokenizer_fingerprint: str
    vocab_size: int
    max_context_tokens: int
    dtype: str = ""
    deterministic: bool = False
    proposer: str = ""
    """A draft replica's proposer; on a target replica the drafter beside it. Empty: none."""
    emulated: bool = False
    tokenizer_path: str = ""
    feature_layers: tuple[int, ...] = ()
    """Layers of the target whose inputs are its features: those that a target replica keeps, or a drafter needs."""
    takes_int8_features: bool = False
    max_draft_depth: int = 0
    """The most draft tokens in a row that the proposer can make; 0: any number."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a replica."""

    max_draft_tokens: int
    max_sequences: int
    takes_prepared_drafts: bool = False
    """Whether a target goes on with drafts that were made ahead (Predrafted)."""


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """Load of a replica at one moment; what is counted, since its engine started."""

    num_sequences_running: int = 0
    num_sequences_waiting: int = 0
    num_kv_blocks_used: int = 0
    num_kv_blocks_total: int = 0
    step_time_ns: int = 0
    draining: bool = False
    num_preemptions: int = 0
    num_sequences_decoding: int = 0
    """Sequences that decoded, verified or proposed in the last step; prefills do not count."""
    num_step_tokens: int = 0
    """Token rows of the last step, prefills included."""
    prefill_time_ns: int = 0
    """Time that prefills added to steps."""
    num_steps: int = 0
    num_rows: int = 0
    """Token rows of all these steps."""
    num_grammar_deaths: int = 0
    """Grammars that a compiling process died of."""
    drafter_version: int = 0
    """Version of the head that drafts now; 0: the configured one, or no head."""
    step_table: StepTable = StepTable()
    """What a target's steps take; from a peer empty unless it has changed."""

    @property
    def num_kv_tokens(self) -> int:
        """Tokens that the KV cache has room for; 0: the replica has not said."""
        return self.num_kv_blocks_total * BLOCK_SIZE
