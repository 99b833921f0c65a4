"""A drafter of another vocabulary for an emulated 70B, at the acceptance that was measured of real pairs
(vocabularies.py, whose newest results are read), in virtual time as `places`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emulation.places import MODEL, tokens_per_s
from shared.report import Report

from pilotfish.emulation.profiles import load_profile
from pilotfish.planning.planner import HANDLING_S
from tests.support.simulated_stack.placed_stack import Way

PROFILE, K, LOADS = "a100-70b", 4, (1, 4)
_RESULTS = Path(__file__).parent.parent / "results"


def run_vocabulary(report: Report, *, quick: bool) -> None:
    """A row for each measured pair, method and load; quick: of the first two pairs; none where no pair
    has been measured."""
    rows = measured_rows()
    if not rows:
        missing = "left out: no results/vocabularies-*.json (vocabularies.py --json writes one)"
        report.conditions["part vocabulary"] = missing
        return
    profile = load_profile(PROFILE)
    model = profile.drafter(MODEL)
    report.conditions |= {"time": "virtual", "K": K, "drafter": f"{MODEL} of {PROFILE}, beside the target"}
    report.columns = {
        "pair": "acceptance of",
        "method": "method",
        "temperature": "temp.",
        "requests": "requests",
        "first": "first draft",
        "speed_up": "speed-up",
    }
    loads = LOADS[:1] if quick else LOADS
    plain = {load: tokens_per_s(profile, Way(handling_s=HANDLING_S), 0, load) for load in loads}
    for row in rows[:2] if quick else rows:
        acceptance = conditional(row["accepted_by_place"])
        # Text is drafted on request alone.
        drafter = replace(model, acceptance=acceptance, drafts_ahead=row["method"].startswith("intersection"))
        way = Way(drafter=drafter, draft_ahead="auto" if drafter.drafts_ahead else "off", handling_s=HANDLING_S)
        for load in loads:
            report.row(
                part="vocabulary",
                pair=f"{row['target']}, {row['drafter']}",
                method=row["method"],
                temperature=row["temperature"],
                requests=load,
                first=acceptance[0],
                speed_up=tokens_per_s(profile, way, K, load) / plain[load],
            )


def measured_rows() -> list[dict[str, Any]]:
    """Rows with drafts in the newest file of each variant; none where there is no file."""
    newest = {path.name.rsplit("-", 3)[0]: path for path in sorted(_RESULTS.glob("vocabularies-*.json"))}
    rows = (row for path in newest.values() for row in json.loads(path.read_text())["rows"])
    return [row for row in rows if row["accepted_by_place"]]


def conditional(accepted: Sequence[float]) -> tuple[float, ...]:
    """Acceptance of each draft token where those before it were accepted; accepted: with all of them."""
    before = 1.0, *accepted
    return tuple(min(1.0, here / earlier) if earlier else 0.0 for earlier, here in zip(before, accepted, strict=False))
