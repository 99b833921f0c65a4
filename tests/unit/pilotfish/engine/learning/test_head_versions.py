"""A head follows the version that serves."""

from collections.abc import Callable, Iterator

import pytest

from pilotfish.engine.learning import head_versions
from pilotfish.engine.learning.head_versions import Exchange, HeadVersions
from pilotfish.errors import ModelError


class World:
    """What serves, what a head drafts with, and which versions are damaged."""

    def __init__(self) -> None:
        self.serving = self.drafting = 0
        self.damaged: set[int] = set()
        self.num_prepared = 0
        self.now = 0.0

    def prepare(self, number: int) -> Exchange:
        self.num_prepared += 1
        if number in self.damaged:
            raise ModelError(f"version {number} is torn")

        def exchange() -> None:
            self.drafting = number

        return exchange


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def follow(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], HeadVersions]]:
    """Its watch never looks by itself."""
    monkeypatch.setattr(head_versions, "_POLL_S", 3600.0)
    made: list[HeadVersions] = []

    def make() -> HeadVersions:
        made.append(HeadVersions(lambda: world.serving, world.prepare, clock=lambda: world.now))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_it_begins_with_what_serves(world: World, follow: Callable[[], HeadVersions]) -> None:
    world.serving = 4
    heads = follow()
    assert (heads.version, world.drafting) == (4, 4)
    assert not heads.take()


def test_what_is_made_ready_is_taken_between_two_steps(world: World, follow: Callable[[], HeadVersions]) -> None:
    heads = follow()
    assert (heads.version, world.num_prepared) == (0, 0)
    world.serving = 1
    heads.look()
    assert (heads.version, world.drafting) == (0, 0)
    assert heads.take()
    assert (heads.version, world.drafting) == (1, 1)
    heads.look()
    assert not heads.take()
    assert world.num_prepared == 1


def test_the_newest_of_those_made_ready_counts(world: World, follow: Callable[[], HeadVersions]) -> None:
    heads = follow()
    for world.serving in (1, 2):
        heads.look()
    assert heads.take()
    assert not heads.take()
    assert heads.version == 2


def test_a_version_that_cannot_be_taken_is_refused_once(
    world: World, follow: Callable[[], HeadVersions], caplog: pytest.LogCaptureFixture
) -> None:
    world.serving = 1
    heads = follow()
    world.damaged, world.serving = {2}, 2
    for _ in range(3):
        heads.look()
    assert not heads.take()
    assert heads.version == 1
    assert world.num_prepared == 2
    assert "version 2 of the head is not taken, version 1 goes on: version 2 is torn" in caplog.text
    assert caplog.text.count("pilotfish drafter rollback") == 1
    world.serving = 1
    heads.look()
    assert heads.take()
    assert heads.version == 1


def test_a_version_that_was_mended_is_taken_after_a_while(world: World, follow: Callable[[], HeadVersions]) -> None:
    heads = follow()
    world.damaged, world.serving = {1}, 1
    heads.look()
    world.damaged = set()
    heads.look()
    assert not heads.take()
    world.now += head_versions._RETRY_S
    heads.look()
    assert heads.take()
    assert heads.version == 1
    world.now += head_versions._RETRY_S
    heads.look()
    assert not heads.take()


def test_the_watch_looks_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_versions, "_POLL_S", 0.001)
    heads = HeadVersions(lambda: world.serving, world.prepare)
    world.serving = 1
    try:
        while not heads.take():
            pass
    finally:
        heads.close()
    assert heads.version == 1
