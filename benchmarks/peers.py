"""Are we faster than the peers, each with its own weights and its own speculation?

All of them answer the same tokens in turns, prompt by prompt: our stack (plain and speculating) and every peer that
`benchmarks/peers/setup.sh` has installed, each in a process and an environment of its own and with as many threads.
Tokens are counted by id and times are taken where the tokens arrive, for all alike. Precisions are compared within:
bf16 with bf16, the packed GGUF with our packed weights.
"""

import contextlib
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from shared.peer_process import PeerArm, PeerProcess
from shared.real_models import ANSWER_TIMEOUT_S, asked, options_parser, report_of, target_folder
from shared.report import Report, dataset_name

from pilotfish.bench.arms import PilotfishArm, Variant
from pilotfish.bench.measurement import Arm
from pilotfish.bench.metrics import ALL
from pilotfish.bench.prompts import Prompt
from pilotfish.bench.proposers import Proposer, parse_proposers
from pilotfish.bench.result import Result, result_of
from pilotfish.bench.runner import TokenisedPrompt, run_arms
from pilotfish.bench.suite import STACK_DEFAULTS, Run, Settings
from pilotfish.chat import ChatMessage
from pilotfish.cli.bench_progress import BenchProgress
from pilotfish.client.inference import InferenceClient
from pilotfish.config import environment, load_config
from pilotfish.launch.local_stack import LocalStack

HERE = Path(__file__).parent
GGUF = "smollm2-135m-instruct.gguf"
MIN_CONTEXT = 2048


@dataclass(frozen=True)
class Peer:
    """One system with one set of weights."""

    name: str
    precision: str
    environment: str
    """Its folder under --peers; empty: ours."""
    script: str
    weights: str
    """Under --peers; empty: the default target's folder."""

    def is_installed(self, peers: Path) -> bool:
        """Whether setup.sh has finished with it."""
        if not self.environment:
            return True
        return (peers / self.environment / "installed").exists() and (peers / self.weights).exists()


VLLM = Peer("vllm bf16", "bf16", "vllm", "run_vllm.py", "")
PEERS = (
    Peer("transformers", "bf16", "", "run_transformers.py", ""),
    Peer("openvino bf16", "bf16", "openvino", "run_openvino.py", "openvino-bf16"),
    Peer("openvino Q4_1", "Q4_1", "openvino", "run_openvino.py", GGUF),
    Peer("llama.cpp Q4_1", "Q4_1", "llama_cpp", "run_llama_cpp.py", GGUF),
    VLLM,
)
OURS: Mapping[str, tuple[str, ...]] = {"bf16": (), "Q4_1": ("target.engine.quantization=int4",)}
"""Our weights for each precision, as overrides of the configuration: the same model packed as the GGUF holds it, with
activations of eight bits as the peers have; its texts are held against those in bf16."""


@dataclass(frozen=True)
class Conditions:
    """What every contestant gets."""

    model: Path
    threads: int
    context: int


def peer_process(peer: Peer, mode: str, peers: Path, conditions: Conditions, more: Sequence[str] = ()) -> PeerProcess:
    """One mode of a peer, with more options of its script; not started yet."""
    weights = peers / peer.weights if peer.weights else conditions.model
    python = str(peers / peer.environment / "bin/python") if peer.environment else sys.executable
    argv = [python, str(HERE / "peers" / peer.script), "--model", str(weights)]
    argv += ["--mode", mode, "--threads", str(conditions.threads), "--context", str(conditions.context), *more]
    variables = {"PYTHONPATH": str(HERE.parent), "HF_HUB_OFFLINE": "1"}
    return PeerProcess(peer.name, argv, environment(variables))


@contextlib.contextmanager
def peer_arms(
    chosen: Sequence[Peer], peers: Path, conditions: Conditions, temperature: float
) -> Iterator[list[PeerArm]]:
    """Every chosen peer, started: plain and with its own lookup."""
    arms = []
    with contextlib.ExitStack() as stack:
        for peer in chosen:
            for mode in ("plain", "lookup"):
                print(f"starting {peer.name} {mode}", file=sys.stderr)
                started = stack.enter_context(peer_process(peer, mode, peers, conditions))
                arms.append(PeerArm(started, mode, temperature))
        yield arms


@contextlib.contextmanager
def our_stacks(
    proposer: Proposer, settings: Settings, overrides: Sequence[str]
) -> Iterator[tuple[InferenceClient, list[PilotfishArm]]]:
    """Our stack for each precision, all at once: a client of the first, and plain and speculating arms of each."""
    clients, arms = [], []
    with contextlib.ExitStack() as stack:
        for precision, own in OURS.items():
            print(f"starting our stack, {precision}", file=sys.stderr)
            config = load_config(overrides=[*STACK_DEFAULTS, *proposer.overrides, *own, *overrides])
            address = stack.enter_context(LocalStack(config)).address
            clients.append(stack.enter_context(InferenceClient(address)))
            arms += [
                PilotfishArm(
                    clients[-1],
                    variant,
                    request_proposer="" if variant.is_plain else proposer.request_name,
                    common=settings.options,
                    timeout_s=ANSWER_TIMEOUT_S,
                    label=f"ours {precision}",
                )
                for variant in (Variant(), *settings.variants([proposer]))
            ]
        yield clients[0], arms


def context_for(num_tokens: int) -> int:
    """A power of two with some room: vLLM compiles anew for every length."""
    return max(MIN_CONTEXT, 1 << (num_tokens + 15).bit_length())


def installed(peers: Path) -> list[Peer]:
    """The peers that setup.sh has brought there; the others are named on stderr."""
    there = []
    for peer in PEERS:
        if peer.is_installed(peers):
            there.append(peer)
        else:
            print(f"left out: {peer.name} (run benchmarks/peers/setup.sh {peer.environment})", file=sys.stderr)
    return there


def run_all(
    chosen: Sequence[Peer],
    peers: Path,
    prompts: Sequence[Prompt],
    settings: Settings,
    proposer: Proposer,
    overrides: Sequence[str],
    prompts_from: str,
) -> Result:
    """Start everybody, then take turns."""
    config = load_config(overrides=overrides)
    folder = target_folder(config)
    with our_stacks(proposer, settings, overrides) as (client, ours):
        tokenised = [TokenisedPrompt(each, client.tokenize((ChatMessage("user", each.text),))) for each in prompts]
        longest = max(len(each.token_ids) for each in tokenised)
        threads = config.target.engine.num_threads or len(os.sched_getaffinity(0))
        conditions = Conditions(folder, threads, context_for(longest + settings.max_tokens))
        temperature = settings.options.temperature or 0.0
        with (
            peer_arms(chosen, peers, conditions, temperature) as theirs,
            BenchProgress(Console(stderr=True)) as progress,
        ):
            arms: list[Arm] = [*ours, *theirs]
            progress.begin(len(arms) * len(prompts) * settings.num_repeats)
            samples = run_arms(
                arms,
                tokenised,
                max_tokens=settings.max_tokens,
                turns=range(settings.num_repeats),
                on_answer=progress.advance,
            )
            run = Run(samples=samples, infos=[client.info()])
    return result_of(run, settings, prompts_from=prompts_from, overrides=overrides, baseline=ours[0].name)


def add_checks(report: Report, result: Result, peers: Mapping[str, str]) -> None:
    """Check each peer (name to precision): our plain over its plain, and our best over its best, in whole answers."""
    for peer, precision in peers.items():
        ours = [arm for arm in result.arms if arm.startswith(f"ours {precision} ")]
        theirs = [arm for arm in result.arms if arm.startswith(f"{peer} ")]
        pairs = {"plain": (ours[0], theirs[0]), "best": (fastest(result, ours), fastest(result, theirs))}
        for name, (our, their) in pairs.items():
            report.check(f"{name}: {our} over {their}", speed_ratio(result, our, their), 1.0, kind="at least")


def fastest(result: Result, arms: Sequence[str]) -> str:
    """The arm that is fastest over all categories."""
    return max(arms, key=lambda arm: speed_ratio(result, arm, result.baseline))


def speed_ratio(result: Result, arm: str, other: str) -> float:
    """Mean over the categories of the ratio of tokens per second, prefill included."""
    names = [category for category in result.categories if category != ALL]
    return statistics.fmean(result.row(arm, name).tokens_per_s / result.row(other, name).tokens_per_s for name in names)


def main(arguments: Sequence[str] | None = None) -> int:
    peers_parser = options_parser(__doc__, lengths=())
    peers_parser.add_argument("--peers", type=Path, default=Path("/tmp/peers"), help="where setup.sh installed them")
    peers_parser.add_argument("--only", nargs="*", default=None, metavar="NAME", help="peers whose name begins so")
    peers_parser.add_argument("--proposer", default="ngram", metavar="NAME[=FOLDER]", help="ours")
    options = peers_parser.parse_args(arguments)
    prompts, settings = asked(options)
    chosen = [
        peer for peer in installed(options.peers) if not options.only or peer.name.startswith(tuple(options.only))
    ]
    (proposer,) = parse_proposers([options.proposer])
    prompts_from = dataset_name(options)
    result = run_all(chosen, options.peers, prompts, settings, proposer, options.set, prompts_from)
    report = report_of("Are we faster than the peers?", result)
    add_checks(report, result, {peer.name: peer.precision for peer in chosen})
    report.finish(options, has_shown_rows=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
