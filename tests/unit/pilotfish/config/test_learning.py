"""Which head learns, and where what it learns from lies."""

from pathlib import Path

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError

ENABLED = "draft.learning.enabled=true"


def test_the_shipped_head_in_the_target_learns() -> None:
    config = load_config(None, [ENABLED, "cache_dir=/cache"])
    assert config.learning_head == "smollm2-135m-instruct-eagle3"
    expected = "/cache/learning/smollm2-135m-instruct--smollm2-135m-instruct-eagle3"
    assert config.learning_folder == Path(expected)


def test_a_head_in_the_draft_service_learns_in_a_folder_that_is_named() -> None:
    config = load_config(None, [ENABLED, "draft.proposer=eagle3", "draft.head=/heads/own", "draft.learning.folder=/l"])
    assert config.learning_head == "/heads/own"
    assert config.learning_folder == Path("/l")


def test_models_whose_names_end_alike_share_no_folder() -> None:
    heads = ["eagle3", "/a/eagle3", "/b/eagle3"]
    settings = [ENABLED, "cache_dir=/cache", "target.drafter.proposer=eagle3"]
    folders = [load_config(None, [*settings, f"target.drafter.model={head}"]).learning_folder for head in heads]
    assert len(set(folders)) == len(heads)
    assert all("--eagle3" in folder.name for folder in folders)


@pytest.mark.parametrize("setting", ["draft.proposer=suffix", "draft.proposer=medusa", "target.drafter.proposer=none"])
def test_other_drafters_do_not_learn(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"no EAGLE-3 head drafts: set target.drafter.proposer or draft.proposer"):
        load_config(None, [ENABLED, setting, "draft.head=head"])


@pytest.mark.parametrize("setting", ["max_bytes=0", "held_out_share=1", "learning_rate=0", "key=x"])
def test_values_out_of_range_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"draft.learning.{setting.partition('=')[0]}"):
        load_config(None, [f"draft.learning.{setting}"])
