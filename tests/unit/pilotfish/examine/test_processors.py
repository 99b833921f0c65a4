import pytest

from pilotfish.config import load_config
from pilotfish.examine.processors import shares_processors

ELSEWHERE = 'orchestrator.draft_addresses=["draft.example:50062"]'


@pytest.mark.parametrize(
    ("overrides", "is_shared"),
    [
        ((), True),  # both take all cores there are
        (("draft.engine.num_threads=1",), True),
        (("target.engine.num_threads=3", "draft.engine.num_threads=1"), False),
        ((ELSEWHERE,), False),
    ],
)
def test_more_threads_than_cores_on_one_machine(overrides: tuple[str, ...], *, is_shared: bool) -> None:
    assert shares_processors(load_config(overrides=overrides), num_cores=4) is is_shared


def test_a_gpu_is_a_processor_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert not shares_processors(load_config(overrides=["target.engine.device=cuda"]), num_cores=4)
