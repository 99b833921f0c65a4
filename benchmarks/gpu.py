"""What do decoding, verifying and drafting cost on a GPU, and what is speculation worth there?

Models of real shapes with random weights: what a step costs does not depend on the weights' values. Stages, each of
which writes the JSON before the next begins; one that fails says so and the others run:

equality     a small model's logits, recorded, against float32 on the CPU
steps        Llama-3.1-8B by sequences and rows, recorded, eager and on SDPA, against the time of reading the weights
mixture      one long text among 63 short ones, whose keys should cost the time of reading them and no more
head         the forward of its EAGLE-3 head, recorded and eager
speculation  the engine on both: plain decoding beside rounds of K draft tokens, at given shares of acceptance
others       Qwen3-8B, and one of eight ranks of Llama-3.1-70B in fp8
ranks        that model as the only rank of a tensor-parallel group, its sums over NCCL recorded and not
stack        `pilotfish bench load` over a real model's folder (`--model`) on the GPU, if there is one

`--device cpu --shape tiny` shows that it runs; its figures mean nothing. `gpu_wheels.sh` collects what a bare machine
lacks.
"""

import copy
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from engine_step import decode_step
from shared.gpu_models import MAX_CONTEXT, MAX_SEQUENCES, SHAPES, Bench, bandwidth_gb_s, read_bytes, shape
from shared.report import Report, median_ms, parser
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from pilotfish.drafters.eagle3.config import default_feature_layers
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.engine.core.draft_costs import Thresholds
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process.gpu import record_graphs
from pilotfish.messages import Decode, OpenSequence, Verdict
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.device import enter_device, resolve_device
from pilotfish.models.feature_head import FeatureHead, HeadStep
from pilotfish.models.gpu_factory import build_gpu_decoder
from pilotfish.parallel.group import ProcessGroup
from pilotfish.parallel.sharded_model import cut_modules
from pilotfish.types import BLOCK_SIZE, ModelInfo, SamplingParams

SEQUENCES = (1, 4, 16, 64)
ROWS_EACH = (1, 4, 8)
CONTEXT = 512
ACCEPTANCE = (0.6, 0.7, 0.8)
DRAFT_TOKENS = (3, 5)
MIXTURE = (*[300] * 63, 131_072)
"""Tokens in the cache of each sequence."""
STAGES = ("equality", "steps", "mixture", "head", "speculation", "others", "ranks", "stack")


def equality(bench: Bench) -> None:
    """Logits of a prefill and a verification in bfloat16, as a share of float32's on the CPU."""
    torch.manual_seed(0)
    config = shape(LlamaConfig, 512, 1024, 4, 8, vocab_size=1024, num_key_value_heads=2, head_dim=64)
    reference = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    decoder = bench.decoder(copy.deepcopy(reference).to(bench.device, torch.bfloat16))
    tokens = [7 * place % 1000 for place in range(400)]
    expected = reference(torch.tensor([tokens])).logits[0]
    parts: list[Tensor] = []
    for start, end in ((0, 390), (390, 391), (391, 400)):
        step = decode_step(1, end - start, start)
        parts.append(decoder.forward(replace(step, token_ids=tokens[start:end])).float().cpu())
    error = float((torch.cat(parts) - expected).norm() / expected.norm())
    bench.report.check("logits in bfloat16 beside float32 on the CPU: relative error", error, 0.02, unit="")


def steps(bench: Bench) -> None:
    """The grid recorded; some of it eager and on SDPA."""
    name = bench.options.shape
    with bench.model(name) as model:
        decoder = bench.decoder(model)
        times = _time_steps(bench, name, "graphs", decoder, model)
        eager = _time_steps(
            bench, name, "eager", bench.decoder(model, cuda_graphs=False, compile=False), model, few=True
        )
        _time_steps(bench, name, "sdpa, eager", bench.decoder(model, attention="sdpa", compile=False), model, few=True)
        floor = bench.floor_ms(read_bytes(model))
    bench.report.check(f"{name}: a decode with graphs over the bandwidth floor", times[1, 1] / floor, 1.5)
    bench.report.check(f"{name}: a decode with graphs over one without", times[1, 1] / eager[1, 1], 1.0)
    bench.report.check(f"{name}: verifying 8 rows over decoding", times[1, 8] / times[1, 1], 1.2)


def mixture(bench: Bench) -> None:
    """A decode of the mixture and of its short texts alone, against the time of reading the weights and all keys."""
    name = bench.options.shape
    over = {}
    with bench.model(name) as model:
        decoder = build_gpu_decoder(model, bench.engine(), bench.device, max_context_tokens=max(MIXTURE) + BLOCK_SIZE)
        num_blocks = mixed_step(MIXTURE).slices[-1].block_ids[-1] + 1
        block_bytes = decoder.allocate(num_blocks).num_bytes // num_blocks
        record_graphs(decoder)
        for kind, contexts in (("short texts", MIXTURE[:-1]), ("short texts and a long one", MIXTURE)):
            step = mixed_step(contexts)
            ms = median_ms(lambda step=step: decoder.forward(step).argmax(-1).tolist(), bench.samples)
            kv_bytes = sum(contexts) * block_bytes // BLOCK_SIZE
            floor = bench.floor_ms(read_bytes(model) + kv_bytes)
            over[kind] = ms / floor
            bench.report.row(
                stage="mixture",
                model=name,
                kind=kind,
                sequences=len(contexts),
                kv_bytes=kv_bytes,
                ms=ms,
                over_floor=over[kind],
            )
    bench.report.check(f"{name}: a long text among short ones over the bandwidth floor", over[kind], 2.0)


def mixed_step(contexts: Sequence[int]) -> StepInput:
    """One new row of each sequence, by its tokens in the cache; all logits wanted."""
    slices: list[SequenceSlice] = []
    first = 1
    for row, context in enumerate(contexts):
        end = first + context // BLOCK_SIZE + 1
        slices.append(SequenceSlice(row, 1, context, range(first, end)))
        first = end
    rows = range(len(contexts))
    return StepInput([(7 * row + 11) % 500 for row in rows], list(contexts), slices, rows)


def head(bench: Bench) -> None:
    """One forward by rows, as in drafting, with the likeliest token brought to the host."""
    name = bench.options.shape
    with bench.model(name) as model:
        decoder = bench.decoder(model)
        times: dict[tuple[str, int], float] = {}
        for kind in ("graphs", "eager"):
            runtime, num_bytes = bench.head(model, decoder, graphs=kind == "graphs")
            runtime.allocate(MAX_SEQUENCES * 60)
            floor = bench.floor_ms(num_bytes)
            for rows in (1, 4, 16, 64):
                states = torch.zeros(rows, model.config.hidden_size, dtype=torch.bfloat16, device=bench.device)
                step = decode_step(rows, 1, CONTEXT, num_token_ids=500)
                ready = HeadStep(step.token_ids, step.positions, step.slices, step.logit_rows, states)

                def run(runtime: FeatureHead = runtime, ready: HeadStep = ready) -> None:
                    runtime.forward(ready).logits.argmax(-1).tolist()

                times[kind, rows] = median_ms(run, bench.samples)
                _row(bench, "head", name, f"head, {kind}", rows, 1, times[kind, rows], floor)
    bench.report.check("a head's forward in a graph over one without", times["graphs", 1] / times["eager", 1], 0.5)


def speculation(bench: Bench) -> None:
    """What a round costs in the engine, the head's forwards and the host's work included."""
    name, best = bench.options.shape, 0.0
    with bench.model(name) as model:
        decoder = build_gpu_decoder(model, bench.engine(), bench.device, max_context_tokens=MAX_CONTEXT)
        decoder.capture(default_feature_layers(model.config.num_hidden_layers))
        info = ModelInfo(
            model_id=name, tokenizer_fingerprint="none", vocab_size=decoder.vocab_size, max_context_tokens=MAX_CONTEXT
        )
        drafter = _Unhurried(decoder, bench.head(model, decoder, graphs=True)[0], top_m=32)
        core = EngineCore(decoder, bench.engine(), info, drafter=drafter)
        record_graphs(decoder)
        for sequences in (1, 4, 16):
            plain = _round_ms(core, sequences, 0, bench.samples)
            _row(bench, "speculation", name, "plain", sequences, 1, plain, None)
            for num_drafts in DRAFT_TOKENS:
                round_ms = _round_ms(core, sequences, num_drafts, bench.samples)
                speed_ups = {a: mean_tokens(a, num_drafts) * plain / round_ms for a in ACCEPTANCE}
                note = ", ".join(f"{value:.2f}x at {a}" for a, value in speed_ups.items())
                _row(bench, "speculation", name, note, sequences, num_drafts + 1, round_ms, None)
                if sequences == 1:
                    best = max(best, speed_ups[0.7])
    bench.report.check("a head's speed-up of one sequence at acceptance 0.7, in the engine", best, 1.8, kind="at least")


class _Unhurried(Eagle3Drafter):
    """Drafts as far as it may, however little a random head promises."""

    def follow(self, kept: Any, wishes: Any) -> Any:
        patient = {
            index: msgspec.structs.replace(wish, thresholds=Thresholds(0.0, 0.0)) for index, wish in wishes.items()
        }
        return super().follow(kept, patient)


def _round_ms(core: EngineCore, num_sequences: int, num_drafts: int, samples: int) -> float:
    """Mean time of a step of the engine while all sequences decode. Raises RuntimeError when they end before."""
    context = CONTEXT // 2
    sampling = SamplingParams(temperature=0, max_tokens=CONTEXT)
    for key in range(num_sequences):
        core.submit(OpenSequence(key, tuple(range(10 + key, 10 + key + context)), sampling))
        core.submit(Decode(key, context, CONTEXT - context - 16, num_draft_tokens=num_drafts))
    for _ in range(num_sequences + 8):  # prefills and warm-up
        list(core.step())
    start_s = time.perf_counter()
    for _ in range(samples):
        if not any(isinstance(event, Verdict) for event in core.step()):
            raise RuntimeError("the sequences have ended before the samples")
    elapsed_ms = (time.perf_counter() - start_s) * 1e3 / samples
    while core.has_work:
        list(core.step())
    return elapsed_ms


def mean_tokens(acceptance: float, num_drafts: int) -> float:
    """Output tokens of a round: the accepted drafts and one more; (1 - a^(K+1)) / (1 - a)."""
    return (1 - acceptance ** (num_drafts + 1)) / (1 - acceptance)


def others(bench: Bench) -> None:
    """A family with norms of queries and keys, and a rank of a large model in 8 bits."""
    for name, quantization in (("qwen3-8b", "none"), ("llama-3.1-70b-rank", "fp8")):
        if bench.device.type == "cpu":
            continue
        with bench.model(name) as model:
            decoder = bench.decoder(model, quantization=quantization)
            times = _time_steps(bench, name, f"graphs, {quantization}", decoder, model, few=True)
            floor = bench.floor_ms(read_bytes(model))
        bench.report.check(f"{name}: a decode over the bandwidth floor", times[1, 1] / floor, 1.5)


def ranks(bench: Bench) -> None:
    """What the group's calls cost a step. With one rank no bytes travel."""
    name = bench.options.shape
    group = ProcessGroup(0, 1, bench.device, in_rank_order=False)
    with tempfile.TemporaryDirectory() as folder, bench.model(name) as model:
        group.connect(Path(folder) / "store")
        cut_modules(model, group)
        model.requires_grad_(False)
        times = _time_steps(bench, name, "rank, graphs", bench.decoder(model), model, few=True)
        plain = bench.decoder(model, cuda_graphs=False, compile=False)
        eager = _time_steps(bench, name, "rank, no graphs", plain, model, few=True)
    bench.report.check(f"{name}: a decode of a rank with graphs over one without", times[1, 1] / eager[1, 1], 1.0)


def stack(bench: Bench) -> None:
    """Orchestrator, target and its head as processes, the target on the GPU."""
    if bench.options.model is None:
        bench.report.row(stage="stack", kind="not run: no --model")
        return
    settings = (
        f"target.model={bench.options.model}",
        f"target.engine.device={bench.device.type}",
        "target.engine.kv_cache_tokens=0",
        "target.drafter.proposer=eagle3",
        f"target.drafter.model={bench.options.head}",
    )
    command = [sys.executable, "-m", "pilotfish.cli.__main__", "bench", "load", "--concurrency", "1,16"]
    command += ["--output-tokens", "128", "--requests", "16", "--turns", "1", "--modes", "off,on", "--json"]
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-800:])
    bench.report.conditions["stack"] = json.loads(done.stdout)
    bench.report.row(stage="stack", kind="see conditions.stack")


def _time_steps(
    bench: Bench, name: str, kind: str, decoder: TransformersDecoder, model: PreTrainedModel, *, few: bool = False
) -> dict[tuple[int, int], float]:
    """Milliseconds by (sequences, rows of each), with the greedy tokens brought to the host, as the engine does."""
    times: dict[tuple[int, int], float] = {}
    floor = bench.floor_ms(read_bytes(model))
    for sequences in (1, 16) if few else SEQUENCES:
        for rows_each in (1, 8) if few else ROWS_EACH:
            step = decode_step(sequences, rows_each, CONTEXT, num_token_ids=500)
            times[sequences, rows_each] = median_ms(
                lambda step=step: decoder.forward(step).argmax(-1).tolist(), bench.samples
            )
            _row(bench, "steps", name, kind, sequences, rows_each, times[sequences, rows_each], floor)
    return times


def _row(
    bench: Bench, stage: str, name: str, kind: str, sequences: int, rows_each: int, ms: float, floor_ms: float | None
) -> None:
    over = {} if floor_ms is None else {"over_floor": ms / floor_ms}
    bench.report.row(stage=stage, model=name, kind=kind, sequences=sequences, rows_each=rows_each, ms=ms, **over)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to see that it runs")
    options.add_argument("--shape", choices=list(SHAPES), default="llama-3.1-8b")
    options.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    options.add_argument("--model", type=Path, help="a real model's folder, for the stage `stack`")
    options.add_argument("--head", default="smollm2-135m-instruct-eagle3", help="of that model")
    chosen = options.parse_args(arguments)
    device = resolve_device(chosen.device)
    enter_device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    conditions = {"device": name, "torch": torch.__version__, "context": CONTEXT, "weights": "random, bfloat16"}
    report = Report("What do steps cost on a GPU, and what is speculation worth?", conditions)
    bench = Bench(report, device, chosen, bandwidth_gb_s(device), 5 if chosen.quick else 30)
    conditions["bandwidth_gb_s"] = str(round(bench.bandwidth_gb_s))
    for stage in chosen.stages:
        start_s = time.monotonic()
        try:
            with torch.inference_mode():
                globals()[stage](bench)
        except Exception as error:  # the others still run
            traceback.print_exc()
            report.row(stage=stage, kind=f"FAILED: {error!r:.300}")
        conditions[f"{stage}_s"] = str(round(time.monotonic() - start_s))
        if chosen.json:
            report.write(chosen.json)
    report.finish(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
