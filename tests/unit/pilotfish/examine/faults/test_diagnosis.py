from pilotfish.config import Config
from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.drafters import NamedDrafter
from pilotfish.examine.faults.diagnosis import diagnose, rounding_fault, template_fault


def first(rate: float, num_positions: int = 1000) -> Acceptance:
    return Acceptance(1, num_positions, (rate,), (1.0, 1 + rate), (0.0, 1.0))


def test_a_target_that_was_rounded_after_the_head_was_trained() -> None:
    finding = rounding_fault(first(0.5), 0.6, "int4")
    assert finding is not None
    assert "50% of first drafts are accepted with target.engine.quantization int4" in finding.evidence
    assert rounding_fault(first(0.5), 0.53, "int4") is None
    assert rounding_fault(first(0.5, 50), 0.6, "int4") is None  # too few places to say
    assert rounding_fault(Acceptance(0, 0, (), (1.0,), (0.0,)), 0.6, "int4") is None


def test_a_chat_template_that_is_not_the_drafters() -> None:
    finding = template_fault(first(0.4), first(0.6), "with the model's own template")
    assert finding is not None
    assert "40% of first drafts are accepted as prompts are written now, 60% with the model's own" in finding.evidence
    assert template_fault(first(0.6), first(0.61), "") is None
    assert template_fault(first(0.4), first(0.6, 20), "") is None
    assert template_fault(first(0.27), first(0.33), "") is None  # other texts, of sound Medusa heads


def test_a_lookup_has_no_fault() -> None:
    assert not list(diagnose(Config(), NamedDrafter("suffix"), [], []))
