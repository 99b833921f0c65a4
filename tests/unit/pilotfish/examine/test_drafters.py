import pytest

from pilotfish.config import Config, DraftConfig, config_from_dict
from pilotfish.errors import ConfigError
from pilotfish.examine.drafters import NamedDrafter, configured_for, parse_drafters, settings_for


def test_names() -> None:
    drafters = parse_drafters(["eagle3=./my-head", "suffix", "model=small"], Config())
    assert drafters == [NamedDrafter("eagle3", "./my-head"), NamedDrafter("suffix"), NamedDrafter("model", "small")]
    assert [drafter.is_in_target for drafter in drafters] == [True, True, False]


def test_without_names_those_that_are_configured() -> None:
    assert [drafter.kind for drafter in parse_drafters([], Config())] == ["eagle3", "suffix"]
    pool = Config(draft=DraftConfig(proposer="model", model="small"))
    assert parse_drafters([], pool) == [NamedDrafter("model", "small"), NamedDrafter("suffix")]


@pytest.mark.parametrize(
    ("names", "message"),
    [(["eagle4"], "known are ngram"), (["ngram=x"], "has no model"), (["suffix", "suffix"], "named twice")],
)
def test_names_that_make_no_sense(names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_drafters(names, Config())


@pytest.mark.parametrize("name", ["eagle3", "medusa=./m", "suffix", "ngram", "early_exit", "model=small", "model"])
def test_the_settings_of_a_drafter_make_its_configuration(name: str) -> None:
    (drafter,) = parse_drafters([name], Config())
    config = configured_for(Config(), drafter)
    again = configured_for(config_from_dict(settings_for(config)), drafter)
    assert (again.target, again.draft.model, again.draft.engine) == (
        config.target,
        config.draft.model,
        config.draft.engine,
    )
    if drafter.kind == "model":
        assert (config.target.drafter.proposer, config.target.drafter.lookup) == ("none", "none")
        # The target as its own drafter: a copy of the same weights would gain nothing.
        assert config.draft.engine.quantization == ("none" if drafter.model else "int4")
    elif drafter.kind in ("suffix", "ngram"):
        assert (config.target.drafter.proposer, config.target.drafter.lookup) == ("none", drafter.kind)
    else:
        assert (config.target.drafter.proposer, config.target.drafter.lookup) == (drafter.kind, "none")


def test_no_answer_drafts_another_one() -> None:
    """Each prompt is asked twice: the second answer would be found in the first."""
    assert Config().draft.suffix_shared_tokens > 0
    assert configured_for(Config(), NamedDrafter("suffix")).draft.suffix_shared_tokens == 0


@pytest.mark.parametrize("name", ["eagle3", "suffix", "model", "medusa"])
def test_nothing_is_learned_while_drafters_are_examined(name: str) -> None:
    """The head would change meanwhile; and without such a head learning is refused."""
    learning = config_from_dict({"draft": {"learning": {"enabled": True}}})
    assert not configured_for(learning, NamedDrafter(name)).draft.learning.enabled
