"""The trainer in a replica of Ray Serve: it learns until it is shut down, and says why it does not."""

import time
from collections.abc import Callable

import pytest
from filelock import FileLock

from pilotfish.config import Config, load_config
from pilotfish.errors import UnavailableError
from pilotfish.learning.versions import TRAINER_LOCK
from pilotfish.training.online.deployment import TrainerReplica


@pytest.fixture
def config(learning: list[str]) -> Config:
    return load_config(overrides=learning)


def wait_until(happened: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_it_learns_in_its_folder_until_it_is_shut_down(config: Config) -> None:
    lock = config.learning_folder / TRAINER_LOCK
    replica = TrainerReplica(config)
    wait_until(lock.exists)
    replica.check_health()
    replica.shut_down()
    with FileLock(lock, timeout=10):  # another may take its place
        pass
    with pytest.raises(UnavailableError, match="has ended"):
        replica.check_health()


def test_one_that_cannot_learn_is_unhealthy_and_says_why(config: Config) -> None:
    config.learning_folder.mkdir(parents=True)
    with FileLock(config.learning_folder / TRAINER_LOCK):
        replica = TrainerReplica(config)
        wait_until(lambda: not replica.is_learning)
        with pytest.raises(UnavailableError, match="another trainer works in"):
            replica.check_health()
