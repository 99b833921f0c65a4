"""Whole runs over a tiny target: every method, kills in every stage, and what is refused at once."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.errors import ConfigError, HandshakeError, InvalidRequestError, ModelError, ResourceExhaustedError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training import pipeline, workspace
from pilotfish.training.pipeline import run_training
from pilotfish.training.request import Stage, TrainingRequest, Watcher
from tests.support.served_target import ServedTarget
from tests.unit.pilotfish.training.conftest import KilledError


class Recorder(Watcher):
    """Remembers the stages; stops the run at the nth report of one."""

    def __init__(self, kill: Stage | None = None, after: int = 1) -> None:
        self.stages: list[tuple[Stage, float, float]] = []
        self.kill, self.after = kill, after

    def stage(self, stage: Stage, total: float, done: float = 0) -> None:
        self.stages.append((stage, total, done))

    def progress(self, done: float, note: str = "") -> None:
        if self.stages[-1][0] is self.kill:
            self.after -= 1
            if self.after < 0:
                raise KilledError


@pytest.fixture
def request_for(target_folder: Path, tmp_path: Path) -> Any:
    def build(method: str = "eagle3", **changes: Any) -> TrainingRequest:
        values: dict[str, Any] = {
            "method": method,
            "target": str(target_folder),
            "out": tmp_path / "out",
            "cache_dir": tmp_path / "cache",
            "work": tmp_path / "work",
            "num_answer_tokens": 60,
            "max_epochs": 2,
            "batch_tokens": 256,
            "draft_vocab_size": 20,
            "num_layers": 2,
            "num_sequences": 6,
            "num_threads": 1,
        }
        return TrainingRequest(**{**values, **changes})

    return build


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"abc def {'gh ' * (index % 7)} ijk"}) for index in range(30)))
    return path


def test_an_eagle3_head_from_nothing_but_the_target(request_for: Any, target_folder: Path, tmp_path: Path) -> None:
    """Killed while it synthesises, and started again."""
    with pytest.raises(KilledError):
        run_training(request_for(), Recorder(kill=Stage.SYNTHESISE, after=3))
    assert not (tmp_path / "out").exists()
    recorder = Recorder()
    result = run_training(request_for(), recorder)
    assert [stage for stage, _, _ in recorder.stages] == [stage for stage in Stage if stage is not Stage.EXTRACT]
    assert sorted(path.name for path in result.out.iterdir()) == [
        "README.md",
        "config.json",
        "curve.csv",
        "model.safetensors",
    ]
    head = load_eagle3(result.out, num_target_layers=4)
    assert head.config.target_model == "tiny"
    assert head.config.tokenizer_fingerprint == Tokenizer.load(target_folder).fingerprint
    assert head.config.draft_vocab_size == 20
    assert len(result.point.agreement) == 3
    card = (result.out / "README.md").read_text()
    assert "pilotfish train eagle3" in card
    assert "20 tokens, which cover" in card
    assert f"{result.point.agreement[0]:.3f}" in card
    assert not list(tmp_path.glob(".*"))


def test_a_head_learns_on(request_for: Any, data: Path, tmp_path: Path) -> None:
    first = run_training(request_for(data=(data,), out=tmp_path / "first"), Recorder()).out
    changes = {"start_from": first, "learning_rate": 1e-9, "max_epochs": 0.1, "draft_vocab_size": 30}
    second = run_training(request_for(data=(data,), out=tmp_path / "second", **changes), Recorder()).out
    old, new = (load_eagle3(folder, num_target_layers=4) for folder in (first, second))
    torch.testing.assert_close(new.fc.weight, old.fc.weight)
    known = torch.isin(new.target_token_ids, old.target_token_ids)
    torch.testing.assert_close(new.lm_head.weight[known], old.lm_head.weight)
    assert "the head `first`" in (second / "README.md").read_text()
    with pytest.raises(ConfigError, match="--start-from takes a head; draft begins"):
        request_for("draft", start_from=first)


def test_head_and_draft_share_the_features(request_for: Any, data: Path, target_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        run_training(request_for(data=(data,)), Recorder(kill=Stage.TRAIN))
    recorder = Recorder()
    draft = run_training(request_for("draft", data=(data,), out=tmp_path / "draft"), recorder)
    assert (Stage.EXTRACT, 30, 30) in recorder.stages  # nothing left to do
    assert Stage.SYNTHESISE not in [stage for stage, _, _ in recorder.stages]
    model = AutoModelForCausalLM.from_pretrained(draft.out)
    assert model.config.num_hidden_layers == 2
    assert Tokenizer.load(draft.out).fingerprint == Tokenizer.load(target_folder).fingerprint
    assert model(torch.tensor([[5, 6]])).logits.shape == (1, 2, 258)


def test_a_run_goes_on_whatever_ended_it(
    request_for: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in two stages, then by a full disk: the last one finds what an unbroken run would have left it."""
    request = request_for(data=(data,))
    for stage, after in ((Stage.EXTRACT, 0), (Stage.TRAIN, 2)):
        with pytest.raises(KilledError):
            run_training(request, Recorder(kill=stage, after=after))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "write_text_atomically", full)
        with pytest.raises(ResourceExhaustedError, match=r"disk is full.*run the same command again"):
            run_training(request, Recorder())
    assert {path.name for path in tmp_path.iterdir()} - {"cache"} == {"texts.jsonl", "work"}, "nothing half written"
    with pytest.raises(KilledError):
        run_training(request, Recorder(kill=Stage.EXPORT, after=0))  # its one report follows the rename
    assert load_eagle3(tmp_path / "out", num_target_layers=4).config.draft_vocab_size == 20
    assert not list(tmp_path.rglob("*.partial"))
    with pytest.raises(InvalidRequestError, match="exists already"):
        run_training(request, Recorder())


@pytest.mark.parametrize("method", ["eagle3", "medusa", "early_exit", "draft"])
def test_a_drafter_of_a_target_that_runs_elsewhere(
    request_for: Any, data: Path, target_folder: Path, tmp_path: Path, method: str
) -> None:
    """It is killed when all hidden states are there, and needs the target no more. Of the target's files it reads the
    layers that the drafter is made of, and only those are in this copy."""
    partly = tmp_path / "tiny"
    partly.mkdir()
    for path in target_folder.iterdir():
        (partly / path.name).write_bytes(path.read_bytes())
    kept = {"eagle3": (3,), "medusa": (), "early_exit": (2, 3), "draft": (0, 3)}[method]
    tensors = load_file(target_folder / "model.safetensors")
    dropped = tuple(f"model.layers.{layer}." for layer in range(4) if layer not in kept)
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(dropped)}
    save_file(tensors, partly / "model.safetensors", metadata={"format": "pt"})
    changes: dict[str, Any] = {"data": (data,), "target": str(partly)}
    if method == "early_exit":
        changes["exit_layer"] = 3
    with ServedTarget(target_folder, feature_layers=[2, 1, 4]) as target:
        request = request_for(method, target_address=target.address, **changes)
        with pytest.raises(KilledError):
            run_training(request, Recorder(kill=Stage.TRAIN))
    recorder = Recorder()
    result = run_training(request, recorder)
    assert (Stage.EXTRACT, 30, 30) in recorder.stages, "nothing left to ask for"
    assert result.point.mean_acceptance_length >= 1
    assert "--from HOST:PORT --data texts.jsonl" in (result.out / "README.md").read_text()
    if method == "eagle3":
        assert load_eagle3(result.out, num_target_layers=4).config.draft_vocab_size == 20
    # What is computed here is another model's: the one that runs may have rounded weights.
    with pytest.raises(ModelError, match="lack"):
        run_training(request_for(method, out=tmp_path / "here", **changes), Recorder())


def test_what_a_running_target_cannot_do(request_for: Any, data: Path, target_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--from takes texts with answers, and writes none"):
        request_for(target_address="127.0.0.1:1")
    with ServedTarget(target_folder) as target, pytest.raises(HandshakeError, match=r"feature_layers: \[2, 1, 4\]"):
        run_training(request_for(target_address=target.address, data=(data,)), Recorder())


def test_what_cannot_work_is_refused_before_any_stage(
    request_for: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "abc"}\nno json\n')
    with pytest.raises(InvalidRequestError, match="line 2"):
        run_training(request_for(data=(data, bad)), recorder)
    for layers, message in (
        ({"method": "draft", "num_layers": 4}, "--layers is 4; for a target of 4 layers it is 1 to 3"),
        ({"method": "early_exit", "exit_layer": 4}, "--exit-layer is 4; .* of 4 layers is trained after 1 to 3"),
    ):
        with pytest.raises(ConfigError, match=message):
            run_training(request_for(data=(data,), **layers), recorder)
    with pytest.raises(ConfigError, match="device is 'gpu'"):
        request_for(device="gpu")
    with pytest.raises(InvalidRequestError, match="there is no folder"):
        run_training(request_for(out=tmp_path / "no" / "out"), recorder)
    monkeypatch.setattr(workspace.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(ResourceExhaustedError, match="GB are free"):
        run_training(request_for(data=(data,)), recorder)
    assert recorder.stages == []


def test_a_workspace_belongs_to_one_target_and_one_run(
    request_for: Any, data: Path, target_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(KilledError):
        run_training(request_for(data=(data,)), Recorder(kill=Stage.TRAIN))
    other = tmp_path / "other"
    other.mkdir()
    for path in target_folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InvalidRequestError, match="another target"):
        run_training(request_for(data=(data,), target=str(other)), Recorder())

    class Second(Recorder):
        def stage(self, stage: Stage, total: float, done: float = 0) -> None:
            super().stage(stage, total, done)
            run_training(request_for(data=(data,)), Recorder())

    with pytest.raises(InvalidRequestError, match="another run is training"):
        run_training(request_for(data=(data,)), Second())
