"""What a command cannot do is one clear line."""

import shlex

import pytest
from typer.testing import CliRunner

from pilotfish.cli.main import app

PLAN = "plan --prompt-tokens 100 --output-tokens 50 --ahead-tokens 0 -k 2"


def refusal(command: str) -> str:
    result = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "120"})
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    *progress, last = result.stderr.splitlines()
    assert last.startswith("error: ")
    assert all(line == "" or line.startswith("connecting to ") for line in progress)
    return last


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench --proposers magic", "proposer 'magic' is unknown; known are auto, draft, ngram"),
        ("bench --proposers ngram=folder", "proposer ngram has no model"),
        ("bench --proposers ngram,ngram", "a proposer is named twice"),
        ("bench -k 0", "draft lengths must be at least 1, not 0"),
        ("bench --acceptance typical,magic", "known are coupled, rejection, typical, tolerance"),
        ("bench --acceptance coupled,rejection", "the exact arms have one rule"),
        ("bench --prompts /no/such.jsonl", "cannot read prompts from /no/such.jsonl"),
        ("bench --address 127.0.0.1:1 --set draft.port=1", "--address names one that runs"),
        ("bench --address 127.0.0.1:1", "nothing answers at 127.0.0.1:1: start it with `pilotfish up`"),
        ("bench --repeats 2 load", "options of `load` come after it, but repeats came before"),
        ("bench load --modes off,fast", "name some of off, on, auto, each once"),
        ("bench load --modes on,on", "each once"),
        ("bench load --concurrency x", "no list of whole numbers"),
        ("bench load --concurrency 0", "1 or more requests in flight"),
        ("bench load --output-tokens many", "no length distribution"),
        ("bench load --address 127.0.0.1:1 --emulate a100-70b", "--address names one that runs"),
        ("bench load --emulate a1000", "no profile 'a1000'"),
        ("config --set target.colour=blue", "target.colour"),
        ("config --set nonsense", "section.key=value"),
        ("generate x --raw --system brief --address 127.0.0.1:1", "--system"),
        (f"{PLAN} --profile a1000", "no profile 'a1000': known are a100-70b"),
        (f"{PLAN} --acceptance 80", "acceptance 80 is no probability"),
        (f"{PLAN} --rate 0", "must be above 0"),
        (f"{PLAN} --prompt-tokens long", "no length distribution"),
        (f"{PLAN} --token-ms 1", "no fleet reaches 1 ms a token"),
        (f"{PLAN} --ttft-ms 2", "reading the prompt alone takes"),
        (f"{PLAN} --rate 1e9", "20,000 are the most that is planned"),
        ("plan --gpus 2", "--gpus, --gpu-memory-gb, --drafter and --feature-layers go with --model"),
        ("plan --feature-layers 3", "--feature-layers go with --model"),
        ("plan --model llama-3.1-70b --gpus 6", "--gpus is 6; llama-3.1-70b has 64 heads"),
        ("train eagle3 --epochs 0", "epochs is 0"),
        ("train draft --layers 0", "layers is 0"),
        ("train eagle3 --from 127.0.0.1:1", "--from takes texts with answers"),
        ("train draft --target no-such-model", "no-such-model"),
        ("up --emulate h900", "a100-70b"),
    ],
)
def test_before_anything_starts(command: str, message: str) -> None:
    assert message in refusal(command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench --proposers magic", "no proposer magic; it has auto, draft, ngram"),
        ("bench -k 99", "99 draft tokens are more than the target takes in a round"),
        ("bench load --proposer magic", "no proposer magic; it has auto, draft, ngram"),
        ("bench load --output-tokens fixed:500", "at least 628 tokens together; emulated takes 512"),
        ("generate fish -t -1", "temperature"),
        ("generate fish -k 1000", "num_speculative_tokens"),
        ("generate fish --proposer oracle", "oracle"),
        ("generate '' --raw", "empty"),
        ("generate fish --timeout 0.001", ""),
    ],
)
def test_by_the_one_that_runs(address: str, command: str, message: str) -> None:
    assert message in refusal(f"{command} --address {address}")
