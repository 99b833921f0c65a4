"""What `up` would start."""

import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.config import Config, config_from_yaml, load_config
from pilotfish.launch.specs import (
    free_ports,
    prepare,
    ray_environment,
    ray_specs,
    standalone_specs,
    with_link_token,
    with_local_addresses,
)
from pilotfish.launch.supervisor import ChildSpec
from pilotfish.security.link_token import LinkToken

FOLDER = Path("/tmp/x")


def test_standalone_runs_each_service_once_and_only_the_draft_may_end() -> None:
    specs = {spec.name: spec for spec in standalone_specs(Config(), FOLDER)}
    assert set(specs) == {"target_service", "draft_service", "orchestrator"}
    assert [name for name, spec in specs.items() if not spec.essential] == ["draft_service"]
    assert all("/tmp/x/config.yaml" in spec.argv for spec in specs.values())


def test_ports_of_the_pools_are_none_that_the_orchestrator_is_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    own, *others = free_ports(3)
    monkeypatch.setattr("pilotfish.launch.specs._PORTS", [own, *others])
    config = with_local_addresses(load_config(overrides=[f"orchestrator.port={own}"]))
    assert {config.target.port, config.draft.port} == set(others)


@pytest.mark.parametrize("specs_of", [standalone_specs, ray_specs])
def test_a_drafter_that_learns_has_a_trainer_that_nobody_waits_for(
    specs_of: Callable[[Config, Path], list[ChildSpec]],
) -> None:
    trainer = specs_of(load_config(overrides=["draft.learning.enabled=true"]), FOLDER)[-1]
    assert trainer.name == "trainer"
    assert "pilotfish.training.online" in trainer.argv
    assert not trainer.essential
    assert not trainer.services
    assert all(spec.name != "trainer" for spec in specs_of(Config(), FOLDER))


def test_nobody_is_killed_while_it_finishes_requests() -> None:
    config = load_config(overrides=["deployment.orchestrator.drain_s=600"])
    for spec in (*standalone_specs(config, FOLDER), *ray_specs(config, FOLDER)):
        assert spec.stop_timeout_s > 600


def test_local_addresses_agree_and_leave_the_public_one_alone() -> None:
    config = with_local_addresses(Config())
    assert config.orchestrator.target_addresses == (f"127.0.0.1:{config.target.port}",)
    assert config.orchestrator.draft_addresses == (f"127.0.0.1:{config.draft.port}",)
    assert config.target.port != config.draft.port
    assert config.orchestrator.port == Config().orchestrator.port


def test_each_ray_has_a_token_of_its_own() -> None:
    first, second = ray_environment(), ray_environment()
    assert first["RAY_AUTH_MODE"] == "token"
    assert len(first["RAY_AUTH_TOKEN"]) == 64
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
    assert first["RAY_worker_niceness"] == "0"


def test_the_links_get_a_token_unless_they_are_secured_otherwise(tmp_path: Path) -> None:
    token_file = with_link_token(Config(), tmp_path).security.internal.token_file
    assert LinkToken(token_file).shown
    for override in (f"token_file={token_file}", "allow_unauthenticated=true"):
        config = load_config(overrides=[f"security.internal.{override}"])
        assert with_link_token(config, tmp_path / "unused") == config


@pytest.mark.parametrize("standalone", [True, False])
def test_children_find_files_from_their_own_folders(
    standalone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "smollm2-135m-instruct"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpu").touch()
    overrides = ("target.model=mine", "draft.model=smollm2-135m-instruct", "emulation.profile=cpu")
    config = prepare(load_config(overrides=overrides), tmp_path, standalone=standalone).config
    assert config.target.model == str(tmp_path / "mine")
    assert config.draft.model == "smollm2-135m-instruct", "a name of the catalogue is one, whatever lies here"
    assert config.emulation.profile == "cpu"


@pytest.mark.parametrize("standalone", [True, False])
def test_children_read_the_file_and_no_variables(
    standalone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTFISH__TARGET__PORT", "7")
    launch = prepare(load_config(), tmp_path, standalone=standalone)
    assert "PILOTFISH__TARGET__PORT" not in launch.environment
    written = config_from_yaml((tmp_path / "config.yaml").read_text(encoding="utf-8"))
    assert (written.target.port == 7) is not standalone


def test_ports_are_those_that_nobody_has_and_that_no_connection_is_given() -> None:
    with contextlib.ExitStack() as stack:
        taken = free_ports(100)
        for port in taken:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        others = free_ports(100)
    assert len({*taken, *others}) == 200
    assert max(*taken, *others) < 32_768, "from there on Linux gives them to whoever connects"


def test_where_no_port_can_be_bound_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without a loopback interface has no address 127.0.0.1."""

    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise OSError(errno.EADDRNOTAVAIL, "no such address")

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(OSError, match="no such address"):
        free_ports(1)
