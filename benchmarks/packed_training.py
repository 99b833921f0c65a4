"""How well do drafters learn when a GPU runs the target over packed rows in each step, with nothing on disk?

`tokens` makes compact files of conversations. `train` trains a parallel head and early exits together, from one run of
the target a step, and says how many tokens a step the parallel head gives beside the EAGLE-3 head that it began as.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import shared.checkout  # noqa: F401  # finds pilotfish
import torch
from packed_training.judging import judge_chain
from packed_training.loop import Look, LoopConfig, PackedLoop
from packed_training.parallel_head import new_parallel_head
from packed_training.report import Report
from packed_training.target import PackedTarget
from packed_training.tokens import pack, read_tokens, write_tokens
from packed_training.trainees import ExitTrainee, ParallelHeadTrainee, Trainee

from pilotfish.config import default_cache_dir
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.drafters.eagle3.config import read_eagle3_config
from pilotfish.drafters.early_exit.train import new_head as new_exit
from pilotfish.models.loading import load_model
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.data.conversations import Conversation, read_data

MASK_TOKEN_ID = 16
"""`<empty_output>` of the default target: no chat has it."""


def main(argv: Sequence[str]) -> None:
    options = parser().parse_args(argv)
    (make_tokens if options.command == "tokens" else train)(options)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--target", default="smollm2-135m-instruct")
    arguments.add_argument("--cache", type=Path, default=Path(default_cache_dir()))
    commands = arguments.add_subparsers(dest="command", required=True)
    tokens = commands.add_parser("tokens", help="conversations (jsonl, as `pilotfish train --data`) to compact files")
    tokens.add_argument("data", type=Path, nargs="+")
    tokens.add_argument("--out", type=Path, required=True)
    tokens.add_argument("--held-out", type=Path, help="file of conversations that are kept apart, with their prompts")
    tokens.add_argument("--num-held-out", type=int, default=100)
    tokens.add_argument("--max-tokens", type=int, default=1024)
    training = commands.add_parser("train", help="train on such files")
    training.add_argument("data", type=Path)
    training.add_argument("--judge", type=Path, nargs="+", required=True, help="files to judge by; the first decides")
    training.add_argument("--head", type=Path, default=Path("models/smollm2-135m-instruct-eagle3"))
    training.add_argument("--parallel-layers", type=int, default=4, help="layers of the parallel head; 0: train none")
    training.add_argument("--exit-layer", type=int, nargs="*", default=[4], help="layers before each exit")
    training.add_argument("-k", "--num-draft-tokens", type=int, default=5)
    training.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    training.add_argument("--max-minutes", type=float, required=True)
    training.add_argument("--learning-rate", type=float, default=1e-3)
    training.add_argument("--batch-rows", type=int, default=24)
    training.add_argument("--row-tokens", type=int, default=1024)
    training.add_argument("--num-anchors", type=int, default=384)
    training.add_argument("--num-looks", type=int, default=5)
    training.add_argument("--out", type=Path, required=True)
    return arguments


def make_tokens(options: argparse.Namespace) -> None:
    tokenizer = Tokenizer.load(pull_model(options.target, options.cache))
    data = [line for path in options.data for line in read_data(path, tokenizer, options.max_tokens)]
    held_out: list[Conversation] = []
    if options.held_out:
        held_out = data[:: max(1, len(data) // options.num_held_out)][: options.num_held_out]
        prompts = {tuple(each.token_ids[: each.prompt_len]) for each in held_out}
        data = [each for each in data if tuple(each.token_ids[: each.prompt_len]) not in prompts]
        write_tokens(held_out, options.held_out)
    write_tokens(data, options.out)
    for each in (data, held_out):
        num_answer = sum(len(line.token_ids) - line.prompt_len for line in each)
        print(
            f"{len(each):,} conversations, {sum(len(line.token_ids) for line in each):,} tokens, {num_answer:,} learned"
        )


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    began = time.monotonic()
    loaded = load_model(options.target, cache_dir=options.cache, device=options.device)
    num_layers = int(loaded.model.config.num_hidden_layers)
    feature_layers = read_eagle3_config(options.head, num_target_layers=num_layers).feature_layers
    target = PackedTarget(loaded, {*feature_layers, *options.exit_layer})
    learned = read_tokens(options.data)
    trainees = make_trainees(options, target, learned)
    judges, chain = {}, {}
    for path in options.judge:
        data = read_tokens(path)
        judges[path.stem] = pack(data, options.row_tokens).to(loaded.model.device)
        chain[path.stem] = judge_chain(options.head, target, data, options.row_tokens, options.num_draft_tokens)
    report = Report(options.out, target, trainees, judges, chain)
    report.look(Look(0, 0.0, 0, [math.nan] * len(trainees)))
    config = LoopConfig(
        max_minutes=options.max_minutes,
        learning_rate=options.learning_rate,
        batch_rows=options.batch_rows,
        row_tokens=options.row_tokens,
        num_anchors=min(options.num_anchors, options.row_tokens),
        num_looks=options.num_looks,
    )
    print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
    PackedLoop(target, trainees, learned, config).run(report.look)


def make_trainees(options: argparse.Namespace, target: PackedTarget, learned: Sequence[Conversation]) -> list[Trainee]:
    loaded, trainees = target.loaded, list[Trainee]()
    if options.parallel_layers:
        rows = pack(learned[:8], options.row_tokens).to(loaded.model.device)
        head = new_parallel_head(options.head, target, options.parallel_layers, MASK_TOKEN_ID, rows)
        head = head.to(loaded.model.device)
        trainees.append(ParallelHeadTrainee("parallel_head", head, target, options.num_draft_tokens))
    if options.exit_layer:
        num_layers = int(loaded.model.config.num_hidden_layers)
        vocabulary = load_eagle3(options.head, num_target_layers=num_layers).target_token_ids
        for layer in options.exit_layer:
            exit_head = new_exit(loaded, vocabulary, layer).to(options.device)
            trainees.append(ExitTrainee(f"early_exit-{layer}", exit_head, target, options.num_draft_tokens))
    return trainees


if __name__ == "__main__":
    main(sys.argv[1:])
