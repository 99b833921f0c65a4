"""What the target computes while it answers, kept: the same that extraction would compute of the finished text.

Shapes: T rows of a sequence, R logit rows of a step, F captured layers, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.config import EngineConfig
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.models.decoder import Decoder, KVPool, StepInput
from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.samples import Sample
from pilotfish.types import ModelInfo

_KV_TOKENS_EACH = 640
"""Room for each sequence: a prompt and an answer of more than the usual length."""


class SummingDecoder:
    """A Decoder that sums up the logits of each step before the next one overwrites them."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.name = decoder.name
        self.vocab_size = decoder.vocab_size
        self.max_context_tokens = decoder.max_context_tokens
        self.dtype = decoder.dtype
        self.device = decoder.device
        self.features = self.last_hidden = torch.empty(0)
        self.choices = torch.empty(0)
        """int64 [R], the argmax of each logit row."""
        self.log_mass = torch.empty(0)
        """float32 [R], the logsumexp of each logit row."""

    def capture(self, layers: Sequence[int]) -> None:
        self._decoder.capture(layers)

    def allocate(self, num_blocks: int) -> KVPool:
        return self._decoder.allocate(num_blocks)

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        self._decoder.move_kv(moves)

    @torch.inference_mode()
    def forward(self, step: StepInput) -> Tensor:
        logits = self._decoder.forward(step)
        self.features = self._decoder.features
        self.last_hidden = self._decoder.last_hidden
        self.choices = logits.argmax(-1).cpu()
        self.log_mass = logits.float().logsumexp(-1).cpu()
        return logits


class FeatureRecorder(FeatureStore):
    """A feature store that also keeps the rows of the answers it watches. For plain decodes."""

    def __init__(self, decoder: SummingDecoder, layers: Sequence[int]) -> None:
        super().__init__(decoder, layers)
        self._sums = decoder
        self._rows: dict[int, list[tuple[Tensor, Tensor, Tensor, Tensor]]] = {}
        """Rows by sequence, a part for each step that decided a token: features of the rows that are new, then last
        hidden state, choice and log mass of the last of them."""

    def watch(self, sequence_id: int) -> None:
        """Keep what is computed of a sequence, from before its first step on."""
        self._rows[sequence_id] = []

    @torch.inference_mode()
    def keep(self, kept: Sequence[KeptRows]) -> None:
        """Keep the rows, and those of watched answers for their samples."""
        super().keep(kept)
        for rows in kept:
            parts, row = self._rows.get(rows.sequence.sequence_id), rows.last_logit_row
            if parts is None or row is None:
                continue
            end = rows.sequence.num_computed_tokens
            # A preempted sequence computes again what is here already.
            features = self.read(rows.sequence, end - 1 if parts else 0, end)
            sums = (self._sums.last_hidden[row].clone().cpu(), self._sums.choices[row], self._sums.log_mass[row])
            parts.append((features.cpu(), *sums))

    def take_sample(self, sequence_id: int, prompt_len: int, token_ids: Sequence[int]) -> Sample:
        """The sample of a watched sequence, whose every token must have been computed; forgets it."""
        features, *answer = zip(*self._rows.pop(sequence_id), strict=True)
        hidden, choices, log_mass = (torch.stack(column) for column in answer)
        num_before = prompt_len - 1
        return Sample(
            prompt_len,
            torch.tensor(token_ids),
            torch.cat(features),
            hidden,
            torch.cat((choices.new_full((num_before,), -1), choices)),
            torch.cat((log_mass.new_zeros(num_before), log_mass)),
        )

    def forget(self, sequence_id: int) -> None:
        """Drop what was kept of a watched sequence."""
        self._rows.pop(sequence_id, None)


def build_recorded_core(
    loaded: LoadedModel, decoder: Decoder, layers: Sequence[int], num_sequences: int
) -> tuple[EngineCore, FeatureRecorder]:
    """An engine over the decoder of the loaded model, and the recorder of what it computes."""
    summing = SummingDecoder(decoder)
    recorder = FeatureRecorder(summing, layers)
    engine = EngineConfig(kv_cache_tokens=_KV_TOKENS_EACH * num_sequences, max_sequences=num_sequences)
    info = ModelInfo(
        model_id=loaded.model_id,
        tokenizer_fingerprint=loaded.fingerprint,
        vocab_size=decoder.vocab_size,
        max_context_tokens=decoder.max_context_tokens,
    )
    return EngineCore(summing, engine, info, features=recorder), recorder
