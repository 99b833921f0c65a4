"""Some of benchmarks/fuzz.py's inputs: nothing that a peer or a client sends crashes, hangs or stays behind."""

from pathlib import Path

import pytest
from fuzz.replica import ReplicaSurface, RepliesSurface
from fuzz.requests import GrpcSurface
from fuzz.surface import Surface, fuzz

SURFACES = (
    *(kind(service) for kind in (ReplicaSurface, RepliesSurface) for service in ("target", "draft")),
    GrpcSurface(),
)


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # of strategies that are long to write down
def test_any_input_is_taken_or_refused(surface: Surface, tmp_path: Path) -> None:
    tally = fuzz(surface, seed=1, folder=tmp_path, count=100)
    assert not tally.crashes, "\n".join(tally.crashes.values())
    assert tally.num_inputs == 100
