"""`python -m shared.planted_engine`: an engine process of random weights that says what is planted.

As pilotfish.engine.process.worker, but for where the weights come from: a model of the folder's config.json is made on
the device. Engines are built and timed one after the other, each alone on the machine; then both take steps at once, to
see what they cost each other. `steps-ROLE.json` beside the model's folder has the figures.
"""

from __future__ import annotations

import copy
import fcntl
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from shared.planted import MAX_TOKEN_ID, Planting, plant
from transformers import AutoConfig, AutoModelForCausalLM

from pilotfish.config import Config
from pilotfish.drafters.eagle3.config import Eagle3Config, default_feature_layers
from pilotfish.drafters.eagle3.draft import build_eagle3_head
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.emulation.cost_measurement import CostMeasurement, MeasurementPlan, ShapeTimes
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.model_engine import ModelEngine
from pilotfish.engine.process import factory, worker
from pilotfish.engine.process.wire import Role
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Verdict
from pilotfish.models.decoder import Decoder
from pilotfish.models.factory import BuiltDecoder, build_decoder
from pilotfish.models.loading import LoadedModel, silence_transformers
from pilotfish.models.self_check.serving_path import ServingPath
from pilotfish.models.store.folder import read_json, read_metadata
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.types import SamplingParams

PLANTED = "planted.json"
"""File in the model's folder: acceptance; draft lengths, loads and numbers of samples that are timed; together_s."""
OTHER_TIMEOUT_S = 240.0
"""Until the other engine is built and timed."""


def random_model(name_or_path: str, *, dtype: torch.dtype, device: torch.device | str, **_: Any) -> LoadedModel:
    """Stands in for load_model."""
    silence_transformers()
    folder = Path(name_or_path)
    metadata = read_metadata(folder)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=dtype)
    return LoadedModel(
        model=model.eval().requires_grad_(False),
        folder=folder,
        model_id=folder.name,
        vocab_size=metadata.vocab_size,
        max_context_tokens=metadata.max_context_tokens,
        fingerprint=tokenizer_fingerprint(folder),
        path=ServingPath(),
    )


def random_head(loaded: LoadedModel, decoder: Decoder, planting: Planting, top_m: int) -> Eagle3Drafter:
    """An EAGLE-3 head of the target's sizes that drafts what is planted; the decoder captures its layers."""
    sizes: Any = loaded.model.config
    fields = "hidden_size intermediate_size num_attention_heads num_key_value_heads head_dim vocab_size rms_norm_eps"
    config = Eagle3Config(
        **{name: getattr(sizes, name) for name in fields.split()},
        draft_vocab_size=min(MAX_TOKEN_ID, sizes.vocab_size),
        rope_theta=500000.0,
        max_position_embeddings=sizes.max_position_embeddings,
        feature_layers=default_feature_layers(sizes.num_hidden_layers),
        target_model=loaded.model_id,
        tokenizer_fingerprint=loaded.fingerprint,
    )
    with torch.device(decoder.device):
        module = Eagle3Head(config).to(decoder.dtype).eval().requires_grad_(False)
    decoder.capture(config.feature_layers)
    head = build_eagle3_head(decoder, module)
    plant(head, planting, drafts=True)
    return Eagle3Drafter(decoder, head, top_m=top_m)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other engine of this benchmark is built or timed meanwhile."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_engine(config: Config, role: Role, *, rank_folder: Path | None = None) -> ModelEngine:
    """Stands in for factory.build_engine, which it calls."""
    service = config.target if role == "target" else config.draft
    folder = Path(service.model)
    wanted = read_json(folder / PLANTED)

    def planted_decoder(loaded: LoadedModel, *args: Any, **kwargs: Any) -> BuiltDecoder:
        built = build_decoder(loaded, *args, **kwargs)
        plant(built.decoder, Planting(loaded.vocab_size, wanted["acceptance"]), drafts=role == "draft")
        return built

    def planted_head(config: Config, loaded: LoadedModel, decoder: Decoder) -> Eagle3Drafter | None:
        if config.target.drafter.proposer == "none":
            return None
        return random_head(loaded, decoder, Planting(loaded.vocab_size, wanted["acceptance"]), config.draft.top_m)

    replaced = {
        "load_model": random_model,
        "build_decoder": planted_decoder,
        "build_in_target_drafter": planted_head,
    }
    with alone(folder.parent):
        start_s = time.monotonic()
        with patch.multiple(factory, **replaced):
            core = factory.build_engine(config, role, rank_folder=rank_folder)
        figures: dict[str, Any] = {"build_s": time.monotonic() - start_s}
        step_costs = copy.deepcopy(core.step_costs)
        figures |= _timed_alone(core, role, wanted, service.engine.max_batch_tokens)
        figures["timing_s"] = time.monotonic() - start_s - figures["build_s"]
        _write(folder.parent / f"alone-{role}.json", figures)
    other = "draft" if role == "target" else "target"
    if _appears(folder.parent / f"alone-{other}.json"):
        figures |= _timed_together(core, role, wanted)
    core.step_costs = step_costs  # what steps cost while the other engine was at work is no beginning
    core.kv_cache.pool.clear_cache()
    _write(folder.parent / f"steps-{role}.json", figures)
    return core


def _timed_alone(core: Engine, role: Role, wanted: dict[str, Any], max_batch_tokens: int) -> dict[str, Any]:
    """A table of steps, and of a target with a head the rounds of both."""
    lengths, loads = wanted["lengths"], wanted["loads"]
    counts = {1, *loads, 64, *(load * (k + 1) for load in loads for k in lengths)}
    plan = MeasurementPlan(num_sequences=tuple(loads), num_tokens=tuple(sorted(counts)), samples=wanted["samples"])
    plan = plan.within(core, max_batch_tokens)
    measurement = CostMeasurement(core, plan, lambda *_: None)
    if role == "draft":
        return {"cost": asdict(measurement.draft())}
    figures: dict[str, Any] = {"cost": asdict(measurement.target())}
    if core.model.proposer:
        figures["head"] = {
            f"{load} K={k}": _head_round(core, load, k, wanted["head_rounds"]) for load in loads for k in lengths
        }
    return figures


def _head_round(core: Engine, num_sequences: int, k: int, num_rounds: int) -> dict[str, float]:
    """Mean seconds of a step of the engine while all sequences draft with the head, and the tokens of one of them."""
    context = 64
    for key in range(num_sequences):
        prompt = tuple(1000 + (7919 * key + 31 * place) % 3000 for place in range(context))
        core.submit(OpenSequence(key, prompt, SamplingParams(temperature=0, max_tokens=1 << 20)))
        core.submit(Decode(key, context, (k + 1) * (num_rounds + 20 + num_sequences), num_draft_tokens=k))
    for _ in range(num_sequences + 8):  # prefills and warm-up
        core.step()
    start_s, num_tokens = time.perf_counter(), 0
    for _ in range(num_rounds):
        num_tokens += sum(len(event.token_ids) for event in core.step() if isinstance(event, Verdict))
    elapsed_s = time.perf_counter() - start_s
    for key in range(num_sequences):
        core.submit(CloseSequence(key))
    while core.has_work:
        core.step()
    return {"round_s": elapsed_s / num_rounds, "tokens": num_tokens / num_rounds / num_sequences}


def _timed_together(core: Engine, role: Role, wanted: dict[str, Any]) -> dict[str, float]:
    """Median seconds of a step of one sequence while the other engine takes steps, too."""
    timer, times = ShapeTimes(core, time.perf_counter), list[float]()
    with timer.opened(1, 64) as sequences:
        step: Callable[[], float] = (
            (lambda: timer.draft_step_s(sequences))
            if role == "draft"
            else (lambda: timer.verify_s(sequences, wanted["lengths"][0] + 1))
        )
        end_s = time.monotonic() + wanted["together_s"]
        while time.monotonic() < end_s and timer.lengths[sequences[0]] < core.model.max_context_tokens - 64:
            times.append(step())
    return {"beside_s": statistics.median(times)}


def _appears(path: Path) -> bool:
    end_s = time.monotonic() + OTHER_TIMEOUT_S
    while not path.is_file() and time.monotonic() < end_s:
        time.sleep(0.005)
    return path.is_file()


def _write(path: Path, figures: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(figures), encoding="utf-8")
    partial.rename(path)


if __name__ == "__main__":
    worker.build_engine = build_engine
    worker.main()
