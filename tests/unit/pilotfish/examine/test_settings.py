import pytest
import yaml

from pilotfish.config import Config, TargetConfig, config_from_yaml
from pilotfish.examine.drafters import NamedDrafter, configured_for, settings_for
from pilotfish.examine.prediction import Advice
from pilotfish.examine.settings import speculation_settings, with_advice

ADVICE = Advice("eagle3", {1: 4, 4: 3, 8: 2, 16: 0, 64: 0}, 16)


def test_the_nearer_load_counts() -> None:
    assert speculation_settings(ADVICE) == {
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 2, 4], [3, 6, 3], [7, 12, 2]],
        "disable_by_batch_size": 13,
    }


def test_a_drafter_that_pays_at_every_load() -> None:
    settings = speculation_settings(Advice("suffix", {1: 4, 64: 1}, None))
    assert settings["num_speculative_tokens_per_batch_size"] == [[1, 32, 4], [33, 65536, 1]]
    assert "disable_by_batch_size" not in settings


def test_what_is_written_is_a_configuration_with_what_was_there() -> None:
    values = {"orchestrator": {"port": 7, "speculation": {"draft_ahead": "off"}}, "log_level": "ERROR"}
    drafter = {"target": {"model": "m", "drafter": {"proposer": "none", "lookup": "suffix"}}}
    config = config_from_yaml(with_advice(values, ADVICE, drafter))
    speculation = config.orchestrator.speculation
    assert (config.orchestrator.port, config.log_level, speculation.draft_ahead) == (7, "ERROR", "off")
    assert (speculation.num_speculative_tokens, speculation.disable_by_batch_size) == (4, 13)
    assert (config.target.model, config.target.drafter.lookup) == ("m", "suffix")


def test_nothing_pays() -> None:
    config = config_from_yaml(with_advice({}, Advice("", {1: 0}, None), {}))
    assert config.orchestrator.speculation.mode == "off"


def test_what_was_there_does_not_contradict_the_advice() -> None:
    """Neither another drafter nor the advice of an earlier examination."""
    suffix = settings_for(configured_for(Config(), NamedDrafter("suffix")))
    values = yaml.safe_load(with_advice({}, Advice("", {1: 0}, None), {}))
    values |= {"target": {"drafter": {"proposer": "early_exit", "exit_layer": 3}}}
    values |= {"draft": {"proposer": "model", "model": "small"}}
    values["orchestrator"]["speculation"] |= {"proposer": "draft", "disable_by_batch_size": 2, "draft_ahead": "off"}
    config = config_from_yaml(with_advice(values, Advice("suffix", {1: 4, 64: 1}, None), suffix))
    drafter, speculation = config.target.drafter, config.orchestrator.speculation
    assert (drafter.proposer, drafter.lookup, drafter.exit_layer) == ("none", "suffix", 0)
    assert (speculation.mode, speculation.proposer, speculation.disable_by_batch_size) == ("auto", "auto", 0)
    assert (speculation.draft_ahead, config.draft.proposer) == ("off", "auto")


@pytest.mark.parametrize(("name", "goes_on"), [("eagle3", True), ("suffix", False), ("model", False)])
def test_learning_goes_on_with_a_head_that_learns(name: str, goes_on: bool) -> None:
    values = {"draft": {"proposer": "eagle3", "learning": {"enabled": True, "max_age_s": 60}}}
    chosen = settings_for(configured_for(Config(), NamedDrafter(name)))
    learning = config_from_yaml(with_advice(values, Advice(name, {1: 4}, None), chosen)).draft.learning
    assert (learning.enabled, learning.max_age_s) == (goes_on, 60)


def test_a_draft_model_and_an_adapter() -> None:
    served = Config(target=TargetConfig(lora="./style"))
    values = settings_for(configured_for(served, NamedDrafter("model", "small")))
    config = config_from_yaml(with_advice({}, Advice("model=small", {1: 4}, None), values))
    assert (config.target.lora, config.target.drafter.proposer, config.draft.model) == ("./style", "none", "small")


def test_trees_are_turned_off_where_chains_are_faster() -> None:
    written = with_advice({"orchestrator": {"speculation": {"tree_nodes": 9}}}, ADVICE, {})
    assert config_from_yaml(written).orchestrator.speculation.tree_nodes == "auto"
    chains = Advice("eagle3", {1: 4}, None, takes_chains=True)
    assert speculation_settings(chains)["tree_nodes"] == 0
