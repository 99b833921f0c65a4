"""Where drafts should run: each drafter of the profile in each of its places, by distance and load.

A head in the target is in step with it: its passes run on one rank while the others wait. In the pool a drafter has a
GPU for each target, and a network before it. Each drafter has the acceptance that the profile gives for it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from msgspec import structs

from pilotfish.emulation.profiles import DrafterForm, ProfiledDrafter
from pilotfish.planning.decoding import TOLERANCE, DecodingModel
from pilotfish.planning.draft_assumptions import Placement
from pilotfish.planning.planner import Planner
from pilotfish.planning.result import PlaceRow

ONE_WAYS_S = (0.0002, 0.002, 0.010)
"""Times between the orchestrator and any replica, with all that is done on the way."""
LOADS = (1, 4, 16, 64)
BYTES_PER_S = 1.25e9
"""10 Gbit/s, for each target: an assumption. One connection may get less than the machine's network has."""
_PLACES = {Placement.COLOCATED: "target", Placement.SEPARATE: "pool"}


def place_rows(planner: Planner) -> list[PlaceRow]:
    """Rows for all of ONE_WAYS_S and LOADS, one of them the best; none where the profile lists no drafters."""
    if not planner.profile.drafters:
        return []
    loads = [load for load in LOADS if load <= planner.profile.max_sequences]
    return [row for one_way_s, load in product(ONE_WAYS_S, loads) for row in _rows(planner, one_way_s, load)]


def _rows(planner: Planner, one_way_s: float, load: int) -> list[PlaceRow]:
    """A row for each place at one distance and load, those first that need fewer GPUs."""
    rows = [PlaceRow(one_way_ms=one_way_s * 1e3, requests=load)]
    for placement, drafter in product(_PLACES, planner.profile.drafters):
        if placement is Placement.COLOCATED and drafter.kind is DrafterForm.MODEL:
            continue
        model = drafted(planner, drafter, placement, one_way_s)
        best_k = model.best_k(load)
        rows.append(
            PlaceRow(
                one_way_ms=one_way_s * 1e3,
                requests=load,
                drafter=drafter.name,
                place=_PLACES[placement],
                acceptance=drafter.acceptance,
                best_k=best_k,
                speed_up=model.speed_up(load, best_k),
            )
        )
    limit = max(row.speed_up for row in rows) / (1 + TOLERANCE)
    best = next(row for row in rows if row.speed_up >= limit)
    return [structs.replace(row, is_best=row is best) for row in rows]


def drafted(planner: Planner, drafter: ProfiledDrafter, placement: Placement, one_way_s: float) -> DecodingModel:
    """What tokens take with this drafter there, and so far away."""
    is_ahead = drafter.drafts_ahead and placement is Placement.SEPARATE
    drafting = replace(
        planner.drafting,
        acceptance=drafter.acceptance,
        acceptance_ahead=drafter.acceptance_ahead,
        is_head=drafter.kind is DrafterForm.HEAD,
        ahead_tokens=planner.drafting.ahead_tokens if is_ahead else 0,
    )
    return replace(
        planner.model(drafting, placement),
        profile=replace(planner.profile, draft=drafter.cost),
        round_trip_s=2 * one_way_s,
        features_s=2 * drafter.feature_bytes / BYTES_PER_S,
    )
