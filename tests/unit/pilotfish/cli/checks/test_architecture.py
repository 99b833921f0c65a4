"""The architectures of the configured models, without weights."""

import json
from collections.abc import Sequence
from pathlib import Path

from pilotfish.cli.checks.architecture import check_architectures, probe_serving
from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.config import load_config


def folder_of(parent: Path, model_type: str) -> Path:
    folder = parent / model_type
    folder.mkdir()
    config = {"model_type": model_type, "vocab_size": 100, "max_position_embeddings": 128, "num_hidden_layers": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def check(*overrides: str) -> dict[str, CheckFinding]:
    def probe(folders: Sequence[str]) -> dict[str, dict[str, str]]:
        return {
            folder: {"refusal": "no layers"} if folder.endswith("bert") else {"path": "quickly"} for folder in folders
        }

    return {finding.found: finding for finding in check_architectures(load_config(overrides=overrides), probe)}


def test_a_model_that_cannot_be_served_is_a_problem(tmp_path: Path) -> None:
    llama, bert = folder_of(tmp_path, "llama"), folder_of(tmp_path, "bert")
    assert check(f"target.model={bert}", "draft.num_replicas=0")["no layers"].verdict is Severity.PROBLEM
    draft = check(f"target.model={llama}", f"draft.model={bert}", "draft.proposer=model", "draft.num_replicas=1")
    assert sorted(finding.verdict for finding in draft.values()) == [Severity.OK, Severity.PROBLEM]
    tokenizer_only = check(f"target.model={llama}", f"draft.model={bert}", "draft.proposer=ngram")
    assert [finding.verdict for finding in tokenizer_only.values()] == [Severity.OK]
    assert [found.endswith("is answered as by transformers, quickly") for found in tokenizer_only] == [True]


def test_what_is_not_there_or_not_computed_is_not_asked_for(tmp_path: Path) -> None:
    assert check(f"cache_dir={tmp_path}") == {}
    assert check(f"target.model={folder_of(tmp_path, 'bert')}", "emulation.profile=instant") == {}


def test_a_process_of_its_own_asks_each_folder(tmp_path: Path) -> None:
    folders = [str(folder_of(tmp_path, kind)) for kind in ("llama", "bloom", "bert")]
    verdicts = probe_serving(folders)
    assert list(verdicts) == folders
    assert verdicts[folders[0]] == {"path": "on the paged KV cache"}
    assert verdicts[folders[1]]["path"].startswith("with transformers' own cache, one sequence a forward: 2 of its 2")
    assert "'bert' cannot be served" in verdicts[folders[2]]["refusal"]
