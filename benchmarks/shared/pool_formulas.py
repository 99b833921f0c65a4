"""What target, draft model and head of one device should give together, from their steps, each timed alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.emulation.profiles import HardwareProfile, MeasuredCost
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.draft_assumptions import DraftAssumptions

AHEAD_TOKENS = 60
"""The default of orchestrator.speculation.draft_ahead_tokens."""
CONTEXT = 400
"""Mean length of a sequence."""


@dataclass(slots=True)
class Formulas:
    steps: Mapping[str, Mapping[str, Any]]
    """Steps of each role, as shared.planted_engine has written them."""
    acceptance: float

    def model(self, num_draft_tokens: int, *, ahead: bool) -> DecodingModel:
        """`pilotfish plan`'s, without a network."""
        profile = HardwareProfile(
            name="one device",
            description="",
            target=_cost(self.steps["target"]["cost"]),
            draft=_cost(self.steps["draft"]["cost"]),
            kv_cache_tokens=1 << 20,
            draft_kv_cache_tokens=1 << 20,
            max_sequences=64,
            max_batch_tokens=512,
            max_context_tokens=1 << 20,
        )
        drafting = DraftAssumptions(
            acceptance=(self.acceptance,),
            max_draft_tokens=num_draft_tokens,
            ahead_tokens=AHEAD_TOKENS if ahead else 0,
        )
        return DecodingModel(profile, drafting, context_tokens=CONTEXT)

    def of(self, arm: str, load: int, k: int) -> dict[str, float]:
        """Figures of a row of gpu_pools.py. k: 0 for plain decoding."""
        if arm == "plain":
            return {"formula_tokens_per_s": load / self.model(1, ahead=False).token_s(load, 0)}
        if arm == "head":
            return self._head(load, k)
        model = self.model(k, ahead=arm != "pool")
        figures = {
            "formula_speed_up": model.speed_up(load, k),
            "formula_tokens": model.drafting.expected_tokens(k),
            "formula_round_ms": 1e3 * model.round_s(load, k),
        }
        return figures if arm == "pool" else figures | self._ahead(model, load, k)

    def _head(self, load: int, k: int) -> dict[str, float]:
        alone = self.steps["target"]["head"][f"{load} K={k}"]
        plain_s = self.model(1, ahead=False).token_s(load, 0)
        return {
            "formula_speed_up": alone["tokens"] * plain_s / alone["round_s"],
            "formula_tokens": alone["tokens"],
            "formula_round_ms": 1e3 * alone["round_s"],
        }

    def _ahead(self, model: DecodingModel, load: int, k: int) -> dict[str, float]:
        """The hit rate, and the speed-up where nothing is hidden: every draft step makes its round longer."""
        outcomes = model.drafting.num_outcomes_ahead(k, load)
        hit_rate = model.drafting.ahead_share(k, outcomes)
        prepared_s = (k + 1) * model.draft_step_s(load, max(1, outcomes))
        asked_s = (1 - hit_rate) * k * model.draft_step_s(load)
        round_s = model.verify_s(load, k) + prepared_s + asked_s
        tokens = model.drafting.expected_tokens(k)
        return {"formula_hit_rate": hit_rate, "in_turns": tokens * model.token_s(load, 0) / round_s}


def _cost(values: Mapping[str, Any]) -> MeasuredCost:
    """A cost from JSON, which knows no tuples."""
    lines = tuple(tuple(line) for line in values["step_times_s"])
    axes = {name: tuple(values[name]) for name in ("num_sequences", "num_tokens")}
    return MeasuredCost(**axes, step_times_s=lines, context_token_s=values["context_token_s"])
