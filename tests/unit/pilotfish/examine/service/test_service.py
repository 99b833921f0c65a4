"""What a running service is taken for, and how its measurements are printed."""

import dataclasses
import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pilotfish.client.access import Access
from pilotfish.client.answer import ServiceInfo
from pilotfish.config import Config, config_from_dict
from pilotfish.errors import ConfigError
from pilotfish.examine.service.answers import ServiceMeasured, has_weights, served_config
from pilotfish.examine.service.fleet import Fleet, FleetDefaults, FleetKind, FleetState, read_fleet
from pilotfish.examine.service.tables import show_service

INFO = ServiceInfo(
    model_id="org/served",
    dtype="bfloat16",
    deterministic=True,
    max_context_tokens=512,
    num_target_replicas=1,
    num_draft_replicas=0,
    max_draft_tokens=8,
    proposers=("suffix",),
    drafter="",
    version="0.2.0",
    emulated=False,
)
FLEET = Fleet(
    FleetDefaults("auto", "suffix", 2),
    [FleetKind("plain", 200, 90)],
    [FleetState("target-1", "suffix", "on", 3, 1.31, None, (0.62, 0.51))],
)
MEASURED = ServiceMeasured(
    address="server:50051",
    version="0.2.0",
    dtype="bfloat16",
    proposers=("suffix",),
    num_answers=4,
    acceptance=(0.71, 0.44),
    tokens_per_round=1.93,
    num_draft_tokens=120,
    tokens_per_s=30.0,
    plain_tokens_per_s=20.0,
    speed_up=1.52,
    reasons={"too few drafts are found": 1},
    fleet=FLEET,
)


def configured(model: str) -> Config:
    return config_from_dict({"target": {"model": model}})


def test_the_served_model_is_examined_where_none_is_configured() -> None:
    assert served_config(Config(), INFO).target.model == "org/served"


@pytest.mark.parametrize("name", ["org/served", "/srv/models/served"])
def test_a_configured_model_is_known_by_its_name(name: str) -> None:
    info = dataclasses.replace(INFO, model_id="served" if name.startswith("/") else name)
    assert served_config(configured(name), info).target.model == name


def test_services_that_are_not_asked() -> None:
    with pytest.raises(ConfigError, match="the service runs org/served, and"):
        served_config(configured("org/other"), INFO)
    with pytest.raises(ConfigError, match="is emulated there"):
        served_config(Config(), dataclasses.replace(INFO, emulated=True))
    with pytest.raises(ConfigError, match="no target is connected"):
        served_config(Config(), dataclasses.replace(INFO, num_target_replicas=0))


def test_weights_are_looked_for_on_this_machine(tmp_path: Path) -> None:
    config = dataclasses.replace(configured("org/served"), cache_dir=str(tmp_path))
    assert not has_weights(config)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert has_weights(dataclasses.replace(configured(str(tmp_path / "model")), cache_dir=str(tmp_path)))


def test_a_fleet_that_cannot_be_read_is_explained() -> None:
    fleet, problem = read_fleet("127.0.0.1:50051", 1, Access())
    assert fleet is None
    assert "GET /fleet at 127.0.0.1:1 gave nothing" in problem
    assert "--set orchestrator.http.port=N" in problem
    assert "was not asked" in read_fleet("127.0.0.1:50051", -1, Access())[1]


def shown(measured: ServiceMeasured) -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    show_service(measured, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_measurements_are_told() -> None:
    text = shown(MEASURED)
    assert all(figure in text for figure in ("0.71", "0.44", "1.93", "1.52x of greedy answers"))
    (state,) = (line for line in text.splitlines() if "target-1" in line)
    assert state.split() == ["target-1", "suffix", "on", "3", "1.31x", "0.62", "0.51"]
    assert "plain 45%" in text
    assert "in 1 of 4 answers: too few drafts are found" in text
    assert "left out" not in text
    assert "chosen only" not in shown(msgspec.structs.replace(MEASURED, same_choices=0.97))
    assert "chosen only 62% of its" in shown(msgspec.structs.replace(MEASURED, same_choices=0.62))


def test_what_is_left_out_is_told() -> None:
    text = shown(msgspec.structs.replace(MEASURED, fleet=None, fleet_problem="nobody knows", target_missing=True))
    assert "controller has measured is left out: nobody knows." in text
    assert "The target's weights are not on this machine" in text
