"""`pilotfish examine` over real engines with tiny models."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pilotfish.cli.main import app
from pilotfish.config import Config, config_from_dict, load_config
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.engine.process.factory import build_engine
from pilotfish.features import Features
from pilotfish.learning.record import LearnedText
from pilotfish.learning.ring import open_ring
from pilotfish.learning.versions import Versions
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of
from pilotfish.security.api_key_file import write_keys
from tests.support.learning import add_version
from tests.support.stack import StackThread
from tests.support.threaded_engine import ThreadedEngine
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, tiny_llama

runner = CliRunner()


@pytest.fixture
def arguments(target_folder: Path, tmp_path: Path) -> list[str]:
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        {"category": kind, "turns": [f"{kind} {number} swims ahead"]} for kind in ("fish", "boat") for number in "12"
    ]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    # The tiny target's greedy answers repeat themselves, so lookups find much.
    engine = "{compile: false, num_threads: 1, kv_cache_tokens: 2048, max_sequences: 4, dtype: float32}"
    settings = (
        f"target.model={target_folder}",
        f"target.engine={engine}",
        f"draft.engine={engine}",
        f"cache_dir={tmp_path}",
    )
    sets = [part for setting in settings for part in ("--set", setting)]
    return [*sets, "--prompts", str(prompts), "--max-tokens", "24"]


def examined(*arguments: str) -> Any:
    result = runner.invoke(app, ["examine", *arguments])
    assert result.exit_code == 0, result.output
    return result


def test_every_kind_of_drafter_is_examined(
    arguments: list[str], head_folder: Path, medusa_folder: Path, target_folder: Path
) -> None:
    drafters = [
        f"eagle3={head_folder}",
        f"medusa={medusa_folder}",
        "early_exit",
        f"model={target_folder}",
        "ngram",
        "suffix",
    ]
    # Weights of the target's own type draft what it says: a model of the same weights is always right.
    arguments = [*arguments, "--set", "draft.engine.quantization=none", "--set", "draft.engine.device=auto"]
    report = json.loads(examined(*drafters, "--json", *arguments).stdout)
    results = {drafter["name"].partition("=")[0]: drafter for drafter in report["drafters"]}
    assert list(results) == ["eagle3", "medusa", "early_exit", "model", "ngram", "suffix"]
    assert (report["num_answers"], report["num_tokens"]) == (8, 8 * 24)
    for result in results.values():
        assert set(result["by_category"]) == {"fish", "boat"}
        assert [speed["num_requests"] for speed in result["speeds"]] == [1, 4]
        assert all(speed["tokens_per_s"] >= speed["by_draft_tokens"][0] > 0 for speed in result["speeds"])
        assert result["overall"]["num_positions"] == 8 * 23
    assert results["model"]["overall"]["rates"] == [1.0] * 8
    assert results["suffix"]["greedy"]["tokens_per_round"][-1] > 1.1
    # A random head agrees with its target by chance alone, and that is what is said.
    assert [finding["cause"] for finding in results["eagle3"]["findings"]] == [
        "the drafter hardly ever agrees with this target"
    ]
    assert not results["model"]["findings"]
    assert not results["suffix"]["findings"]


@pytest.fixture
def learning(arguments: list[str], head_folder: Path, tmp_path: Path) -> list[str]:
    """Of services whose head learns, without prompts."""
    settings = (
        "target.drafter.proposer=eagle3",
        f"target.drafter.model={head_folder}",
        "draft.learning.enabled=true",
        f"draft.learning.folder={tmp_path / 'learning'}",
    )
    return [*arguments[:-4], *(part for setting in settings for part in ("--set", setting))]


def keep_texts(config: Config) -> None:
    """Eight, of prompts that are held out."""
    for number in range(8):
        text = (11, 12, 13, 14 + number) * 8  # whatever the target would say
        kept = LearnedText(
            request_id=f"request {number}",
            kind="1a2b3c4d",
            prompt_len=8,
            token_ids=text,
            features=Features(0, len(text), bytes(len(text))),
            finished_at=time.time() + number,
            prompt=f"{number:016x}",
        )
        open_ring(config).append(kept)


def test_recent_requests_are_examined_as_they_were_answered(learning: list[str]) -> None:
    keep_texts(load_config(None, learning[1::2]))
    result = examined("--recent", "--json", *learning)
    report = json.loads(result.stdout)
    assert (report["num_answers"], report["num_tokens"]) == (8, 8 * 24)
    assert report["is_recent"]
    head, suffix = report["drafters"]
    assert suffix["by_category"]["1a2b3c4d"]["rates"][0] == 1.0, "texts repeat themselves"
    assert head["greedy"] is head["sampled"] is suffix["greedy"] is None
    assert all(len(speed["by_remote_draft_tokens"]) == len(speed["by_draft_tokens"]) for speed in head["speeds"])
    assert all(speed["by_remote_draft_tokens"] == [] for speed in suffix["speeds"])
    assert "request" not in result.stdout.replace("num_requests", "")
    shown = examined("suffix", "--recent", "--no-color", *learning).output
    assert "8 answers of recent requests" in " ".join(shown.split())


def test_the_version_that_serves_is_examined_beside_the_configured_head(
    learning: list[str], head_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "learning"
    keep_texts(load_config(None, learning[1::2]))
    Versions(folder).promote(add_version(folder, head_folder, num_target_layers=2, noise=0.1), "by hand")
    report = json.loads(examined("--recent", "--json", *learning).stdout)
    assert [drafter["name"] for drafter in report["drafters"]] == [
        f"eagle3={folder / 'versions' / '1'}",
        f"eagle3={head_folder}",
        "suffix",
    ]
    assert report["num_answers"] == 8


def test_recent_requests_that_there_are_not(learning: list[str], tmp_path: Path) -> None:
    def refusal(*changes: str) -> str:
        result = runner.invoke(app, ["examine", "--recent", *learning, *changes])
        assert result.exit_code == 1
        return " ".join(result.output.split())

    assert "holds no text of the last 3600 s that can be read" in refusal()
    assert "draft.learning.enabled is false" in refusal("--set", "draft.learning.enabled=false")
    assert "leave --prompts and --schema out" in refusal("--prompts", str(tmp_path / "prompts.jsonl"))


@pytest.fixture
def serve(target_folder: Path, tmp_path: Path) -> Callable[..., StackThread]:
    """Serves the tiny target, with these settings of speculation."""

    def start(**speculation: object) -> StackThread:
        engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 2048, "dtype": "float32"}
        config = config_from_dict(
            {
                "target": {"model": str(target_folder), "engine": engine},
                "orchestrator": {"speculation": speculation},
                "cache_dir": str(tmp_path),
            }
        )
        return StackThread(config, lambda: ThreadedEngine(build_engine(config, "target")))

    return start


def at(server: StackThread) -> list[str]:
    port = server.url.rpartition(":")[2]
    return ["--address", server.orchestrator.address, "--set", f"orchestrator.http.port={port}"]


def test_a_running_service_answers_and_says_what_it_measured(
    serve: Callable[..., StackThread], arguments: list[str]
) -> None:
    with serve(mode="on", proposer="suffix") as server:
        report = json.loads(examined("suffix", "--json", *arguments, *at(server)).stdout)
    local = json.loads(examined("suffix", "--json", *arguments).stdout)
    service = report["service"]
    assert (report["num_answers"], report["num_tokens"]) == (8, 8 * 24)
    assert (service["num_answers"], service["target_missing"]) == (8, False)
    assert service["num_draft_tokens"] > 0, "the tiny target's answers repeat themselves"
    assert len(service["acceptance"]) > 0
    assert service["fleet"]["defaults"]["mode"] == "on"
    assert [state["proposer"] for state in service["fleet"]["states"]] == ["suffix"]
    (suffix,) = report["drafters"]
    # The same target, whoever asks it: drafts meet the same greedy answers.
    assert suffix["greedy"] == local["drafters"][0]["greedy"]
    assert suffix["sampled"]["num_positions"] == local["drafters"][0]["sampled"]["num_positions"]


def test_another_model_of_the_served_name_is_noticed(
    serve: Callable[..., StackThread], arguments: list[str], target_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / target_folder.name
    shutil.copytree(target_folder, other)
    sizes = {"vocab_size": PRINTABLE_VOCAB_SIZE, "max_position_embeddings": 512}
    tiny_llama(4, **sizes, bos_token_id=None, eos_token_id=None).save_pretrained(other)
    with serve(mode="off") as server:
        own = json.loads(examined("ngram", "--json", *arguments, *at(server)).stdout)["service"]
        shown = examined(*arguments, *at(server), "--set", f"target.model={other}", "ngram", "--no-color").output
    assert own["same_choices"] > 0.95
    assert "The target here would have chosen only" in " ".join(shown.split())
    assert UNSEEN not in " ".join(shown.split())


def test_a_service_whose_target_is_not_here(serve: Callable[..., StackThread], arguments: list[str]) -> None:
    """Named as the service calls it, which is no folder here."""
    folder = arguments[1].partition("=")[2]
    elsewhere = ["--set", f"target.model=/not/here/{Path(folder).name}"]
    with serve(mode="off") as server:
        shown = " ".join(examined("--no-color", *arguments, *at(server), *elsewhere).output.split())
    assert "The service drafted nothing for these prompts." in shown
    assert "in 8 of 8 answers: the request or the server's default turns speculation off" in shown
    assert "Speculation is off there: set orchestrator.speculation.mode to auto" in shown
    assert "weights are not on this machine" in shown


def test_services_that_cannot_be_asked(serve: Callable[..., StackThread], arguments: list[str]) -> None:
    def refusal(*changes: str) -> str:
        result = runner.invoke(app, ["examine", *arguments, *changes])
        assert result.exit_code == 1
        return " ".join(result.output.split())

    assert "nothing answers at 127.0.0.1:1" in refusal("--address", "127.0.0.1:1")
    assert "leave --recent and --schema out" in refusal("--address", "127.0.0.1:1", "--schema", "any.json")
    with serve() as server:
        other = refusal(*at(server), "--set", "target.model=org/other")
        assert "and target.model is org/other: name the folder or hub id of what it runs" in other


def test_a_service_with_keys_is_asked_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated one, which is refused once its door is open."""
    write_keys(tmp_path / "keys", [ApiKey(name="ann", sha256=digest_of("pf-ann"), limits=KeyLimits())])
    config = config_from_dict(
        {
            "emulation": {"profile": "instant"},
            "cache_dir": str(tmp_path / "cache"),
            "security": {"public": {"api_keys_file": str(tmp_path / "keys")}},
        }
    )

    def refusal(key: str) -> str:
        monkeypatch.setenv("PILOTFISH_API_KEY", key)
        result = runner.invoke(app, ["examine", "--address", server.orchestrator.address])
        assert result.exit_code == 1
        return " ".join(result.output.split())

    with StackThread(config, lambda: start_emulated_engine(config, "target")) as server:
        assert "API key" in refusal("pf-eve")
        assert "is emulated there" in refusal("pf-ann")


UNSEEN = "sampling that drafts cannot see (penalties, grammar)"


@pytest.mark.parametrize("vocabulary", ["intersection", "text"])
def test_a_drafter_of_another_vocabulary(arguments: list[str], other_folder: Path, vocabulary: str) -> None:
    """The same model under other ids: what it drafts is right, if it is understood."""
    drafter = f"model={other_folder}"
    exact = ["--set", "draft.engine.quantization=none", "--set", f"draft.vocabulary={vocabulary}"]
    report = json.loads(examined(drafter, "--json", "--temperature", "0", *arguments, *exact).stdout)
    (result,) = report["drafters"]
    assert result["greedy"]["rates"][0] > 0.9
    assert not result["findings"]


@pytest.mark.parametrize("shape", ["penalties", "grammar"])
def test_what_a_drafter_cannot_see_is_named(
    arguments: list[str], target_folder: Path, other_folder: Path, tmp_path: Path, shape: str
) -> None:
    """A model of another vocabulary is told neither; one of the target's own vocabulary sees both."""
    folder = tmp_path / "shaped"
    shutil.copytree(target_folder, folder)
    options = ["--temperature", "0", "--set", "draft.engine.quantization=none", "--set", f"target.model={folder}"]
    defaults = {"repetition_penalty": 1.3} if shape == "penalties" else {"eos_token_id": 7}
    (folder / "generation_config.json").write_text(json.dumps(defaults))
    if shape == "grammar":
        schema = {"type": "array", "items": {"type": "string", "minLength": 4, "maxLength": 5}, "minItems": 9}
        (tmp_path / "schema.json").write_text(json.dumps(schema))
        options += ["--schema", str(tmp_path / "schema.json")]
    shutil.copytree(folder, tmp_path / "copy")
    drafters = [f"model={other_folder}", f"model={tmp_path / 'copy'}"]
    report = json.loads(examined(*drafters, "--json", *arguments, *options, "--max-tokens", "80").stdout)
    blind, seeing = ([finding["cause"] for finding in drafter["findings"]] for drafter in report["drafters"])
    assert blind == [UNSEEN]
    assert seeing == []


def test_answers_end_as_in_service(arguments: list[str], target_folder: Path, tmp_path: Path) -> None:
    """With one of the model's end tokens, here any token: what would come behind it is not the answer's."""
    folder = tmp_path / "terse"
    shutil.copytree(target_folder, folder)
    vocab_size = json.loads((folder / "config.json").read_bytes())["vocab_size"]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": list(range(vocab_size))}))
    drafters = ["early_exit", f"model={target_folder}"]
    report = json.loads(examined(*drafters, "--json", *arguments, "--set", f"target.model={folder}").stdout)
    assert (report["num_answers"], report["num_tokens"]) == (8, 8)
    assert [drafter["overall"]["num_positions"] for drafter in report["drafters"]] == [0, 0]
    assert report["advice"]["drafter"] == ""


def test_the_advice_becomes_configuration(arguments: list[str], target_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "pilotfish.yaml"
    file.write_text("log_level: ERROR\n")
    text = examined("suffix", "--write", str(file), "--temperature", "0", "--no-color", *arguments).output
    assert "suffix: acceptance, by place in the draft" in text
    config = load_config(file)
    assert config.log_level == "ERROR"
    if config.orchestrator.speculation.mode != "off":  # where it pays on this machine
        assert (config.target.model, config.target.drafter.lookup) == (str(target_folder), "suffix")


def test_what_cannot_be_examined(arguments: list[str]) -> None:
    unknown = runner.invoke(app, ["examine", "eagle4", *arguments])
    assert unknown.exit_code == 1
    assert "there is no drafter 'eagle4'" in unknown.output
    emulated = runner.invoke(app, ["examine", "--set", "emulation.profile=instant"])
    assert emulated.exit_code == 1
    assert "nothing to examine" in emulated.output
    long = runner.invoke(app, ["examine", "suffix", *arguments, "--max-tokens", "500"])
    assert long.exit_code == 1
    assert "tokens; beside answers of 500 the target takes" in " ".join(long.output.split())
