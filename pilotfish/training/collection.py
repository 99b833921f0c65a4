"""What the target computes is collected: of texts that it writes, of texts that a user brought, or by one that runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pilotfish.config import EngineConfig
from pilotfish.features import default_feature_layers
from pilotfish.models.decoder import Decoder
from pilotfish.models.device import resolve_device
from pilotfish.models.factory import build_decoder
from pilotfish.models.loading import LoadedModel, load_model
from pilotfish.models.store.folder import read_metadata, text_fields
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.training.data.conversations import Conversation
from pilotfish.training.data.extract import Extractor, FeatureExtractor, extend
from pilotfish.training.data.prompts import Prompt
from pilotfish.training.data.recorder import build_recorded_core
from pilotfish.training.data.samples import SampleStore
from pilotfish.training.data.served_extract import ServedExtractor
from pilotfish.training.data.synthesise import SynthesisConfig, Synthesiser
from pilotfish.training.data.target_states import WantedStates
from pilotfish.training.request import Stage, TrainingRequest, Watcher
from pilotfish.training.target import load_parts

MAX_TOKENS = 1280
"""Length of a conversation: the longest prompts and answers that are synthesised."""

_PROMPT_SHARE = 0.5
"""Prompt tokens for each answer token of self-synthesis, to estimate disk space."""


@dataclass(frozen=True, slots=True)
class Collection:
    """All that a run learns from."""

    request: TrainingRequest
    folder: Path
    """The target's."""
    tokenizer: Tokenizer
    data: Sequence[Conversation]
    """Empty: the target writes."""
    prompts: Sequence[Prompt]

    @property
    def num_bytes(self) -> int:
        """Bytes of features, the bulk of what is written: three layers of each token, and the last one of answers."""
        request = self.request
        hidden = int(text_fields(read_metadata(self.folder).config)["hidden_size"])
        if self.data:
            num_prompt_tokens = sum(line.prompt_len for line in self.data)
            num_answer_tokens = sum(len(line.token_ids) for line in self.data) - num_prompt_tokens
        else:
            num_answer_tokens = request.num_answer_tokens
            num_prompt_tokens = int(num_answer_tokens * _PROMPT_SHARE)
            num_prompt_tokens += request.answers_per_prompt * sum(len(prompt.token_ids) for prompt in self.prompts)
        return (3 * num_prompt_tokens + 4 * num_answer_tokens) * hidden * torch.bfloat16.itemsize

    def add_to(self, store: SampleStore, watcher: Watcher) -> None:
        """Add what the store lacks. Raises as loading and ServedExtractor do, and OSError when the disk is full."""
        if self.data:
            self._extract(store, watcher)
        else:
            self._synthesise(store, watcher)

    def _synthesise(self, store: SampleStore, watcher: Watcher) -> None:
        request = self.request
        watcher.stage(Stage.SYNTHESISE, request.num_answer_tokens)
        done = sum(sample.num_answer_tokens for sample in store.read())
        watcher.progress(done)
        if done >= request.num_answer_tokens:
            return
        loaded, decoder, layers = _target(request)
        core, recorder = build_recorded_core(loaded, decoder, layers, request.num_sequences)
        synthesis = SynthesisConfig(
            num_answer_tokens=request.num_answer_tokens,
            answers_per_prompt=request.answers_per_prompt,
            num_sequences=request.num_sequences,
            seed=request.seed,
        )
        Synthesiser(core, recorder, self.tokenizer, synthesis, self.prompts).run(store, watcher.progress)

    def _extract(self, store: SampleStore, watcher: Watcher) -> None:
        watcher.stage(Stage.EXTRACT, len(self.data), store.num_conversations)
        if store.num_conversations < len(self.data):
            open_extractor = _served if self.request.target_address else _local
            with open_extractor(self.request) as extractor:
                extend(store, extractor, self.data, watcher.progress)


@contextlib.contextmanager
def _local(request: TrainingRequest) -> Iterator[Extractor]:
    loaded, decoder, layers = _target(request)
    yield FeatureExtractor(decoder, layers, min(MAX_TOKENS, loaded.max_context_tokens))


@contextlib.contextmanager
def _served(request: TrainingRequest) -> Iterator[Extractor]:
    security = LinkSecurity(request.security)
    torch.set_num_threads(request.usable_threads)
    loaded = load_parts(request.target, request.cache_dir, (), resolve_device(request.device))
    text = loaded.model.config.get_text_config()
    num_layers = int(text.num_hidden_layers)
    wanted = WantedStates(
        address=request.target_address,
        model_id=loaded.model_id,
        tokenizer_fingerprint=loaded.fingerprint,
        vocab_size=loaded.vocab_size,
        hidden_size=int(text.hidden_size),
        layers=(*default_feature_layers(num_layers), num_layers),
    )
    with ServedExtractor(wanted, loaded.model.get_output_embeddings(), security, MAX_TOKENS) as extractor:
        yield extractor


def _target(request: TrainingRequest) -> tuple[LoadedModel, Decoder, tuple[int, ...]]:
    """The target, what runs it, and the layers whose inputs are features."""
    torch.set_num_threads(request.usable_threads)
    loaded = load_model(request.target, cache_dir=request.cache_dir)
    layers = default_feature_layers(int(loaded.model.config.get_text_config().num_hidden_layers))
    built = build_decoder(
        loaded,
        EngineConfig(deterministic=False),
        num_threads=request.usable_threads,
        cache_dir=request.cache_dir,
        device=resolve_device(request.device),
    )
    return loaded, built.decoder, layers
