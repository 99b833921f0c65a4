"""A tiny head learns a language from texts, and no candidate serves that has not shown that it drafts better."""

import errno
import os
import random
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from pilotfish.config import LearningConfig
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.errors import ModelError
from pilotfish.learning.facts import VersionFacts
from pilotfish.learning.record import LearnedText, request_digest
from pilotfish.learning.ring import Ring
from pilotfish.learning.versions import Versions
from pilotfish.models.feature_codec import encode_features
from pilotfish.training.online.candidate import OwnData
from pilotfish.training.online.heads import Eagle3Room
from pilotfish.training.online.samples import sample_of
from pilotfish.training.online.trainer import LOOKS, MAX_TEXTS, MAX_USES, OWN_DATA, Trainer
from pilotfish.training.target import load_parts
from tests.unit.pilotfish.training.online.conftest import HIDDEN, VOCAB

WORDS, TEXT_TOKENS, PROMPT_TOKENS = 40, 160, 8
FEATURES = torch.randn(VOCAB, 3 * HIDDEN, generator=torch.Generator().manual_seed(1))
"""The target's features say which token was last, and nothing else."""
SETTINGS = LearningConfig(
    enabled=True,
    min_tokens=3000,
    learning_rate=0.03,
    max_minutes=60,
    held_out_share=0.5,
    data_share=0.5,
    keep_versions=3,
)


Language = Callable[[random.Random], Sequence[int]]


class World:
    """A ring, versions, and a clock that stands still between texts."""

    def __init__(self, folder: Path, room: Eagle3Room, head: Path) -> None:
        self.folder, self.room, self.head = folder, room, head
        self.now = 1000.0
        self.ring = Ring(folder / "ring", max_bytes=1 << 30, max_age_s=1e9, key=None)
        self.versions = Versions(folder, clock=lambda: self.now)
        self.num_texts = 0
        self.trainer = self.new_trainer()

    def new_trainer(
        self,
        own: OwnData | None = None,
        settings: LearningConfig = SETTINGS,
        on_progress: Callable[[float, float], None] = lambda *_: None,
    ) -> Trainer:
        return Trainer(
            settings,
            self.ring,
            self.versions,
            self.room,
            configured=self.head,
            own=own or OwnData(),
            scratch=self.folder / ".candidate",
            clock=lambda: self.now,
            on_progress=on_progress,
        )

    def say(
        self, count: int, tokens: Callable[[random.Random], Sequence[int]], *, held_out: bool, kind: str = "a"
    ) -> None:
        """Add texts of requests that are held out, or that are not."""
        added = 0
        while added < count:
            self.num_texts += 1
            request_id = f"request {self.num_texts}"
            if (int(request_digest(request_id), 16) < 0.5 * 16**16) == held_out:
                added += 1
                self.now += 1
                self.ring.append(text(request_id, tokens(random.Random(self.num_texts)), kind, self.now))

    def run(self) -> None:
        while self.trainer.turn():
            pass


def text(request_id: str, token_ids: Sequence[int], kind: str, at: float) -> LearnedText:
    features = encode_features(FEATURES[list(token_ids)], 0, num_int8_layers=3)
    return LearnedText(request_id, kind, PROMPT_TOKENS, tuple(token_ids), features, finished_at=at)


def sentence(dice: random.Random, step: int = 7) -> list[int]:
    """Each word says which one follows."""
    words = [dice.randrange(WORDS)]
    while len(words) < TEXT_TOKENS:
        words.append((words[-1] * 3 + step) % WORDS)
    return [word + 100 for word in words]


def other_sentence(dice: random.Random) -> list[int]:
    return sentence(dice, step=11)


def nonsense(dice: random.Random) -> list[int]:
    words = sentence(dice)
    dice.shuffle(words)
    return words


@pytest.fixture(scope="module")
def room(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Eagle3Room:
    loaded = load_parts(str(target_folder), tmp_path_factory.mktemp("cache"), (), torch.device("cpu"))
    return Eagle3Room(loaded, HIDDEN)


@pytest.fixture
def world(tmp_path: Path, room: Eagle3Room, head: Path) -> World:
    return World(tmp_path / "learning", room, head)


def learned(world: World) -> Path:
    world.say(40, sentence, held_out=False)
    world.say(12, sentence, held_out=True)
    world.run()
    return world.versions.head_folder(world.versions.serving(), world.head)


@pytest.fixture(scope="module")
def trained(room: Eagle3Room, head: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head that has learned the language."""
    return learned(World(tmp_path_factory.mktemp("trained"), room, head))


def test_a_head_learns_what_it_could_not_even_propose(world: World) -> None:
    learned(world)
    (change,) = world.versions.history()
    facts = world.versions.facts(1)
    assert (change.from_version, change.to_version, change.by_hand) == (0, 1, False)
    assert (facts.parent, facts.num_texts, facts.num_tokens) == (0, 40, 40 * (TEXT_TOKENS - PROMPT_TOKENS))
    assert facts.score is not None
    assert facts.score.before < 1.5
    assert facts.score.after > 1.8
    assert facts.kinds.keys() == {"a"}
    module = load_eagle3(world.versions.head_folder(1, world.head), num_target_layers=4)
    assert set(range(100, 100 + WORDS)) <= set(module.target_token_ids.tolist())
    assert list((world.folder / ".candidate").glob("*")) in ([], [world.folder / ".candidate" / "curve.csv"])
    folders = (world.folder, *(path for path in world.folder.iterdir() if path.is_dir()))
    assert {path.name for path in folders} == {"learning", "ring", "versions", ".candidate"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}  # their user's alone


def test_too_little_new_text_is_waited_for(world: World) -> None:
    world.say(10, sentence, held_out=False)
    assert not world.trainer.turn()
    world.say(20, sentence, held_out=False)
    assert not world.trainer.turn()  # nothing to judge by
    world.say(12, sentence, held_out=True)
    assert world.trainer.turn()
    assert not world.trainer.turn()


def test_a_kind_that_candidates_gain_nothing_on_is_tried_less_often(
    tmp_path: Path, room: Eagle3Room, trained: Path
) -> None:
    world = World(tmp_path, room, trained)
    world.say(12, nonsense, held_out=True)
    tried = []
    for _ in range(6):
        world.say(20, nonsense, held_out=False)
        tried.append(world.trainer.turn())
    assert tried == [True, False, True, False, False, False]
    world.say(20, sentence, held_out=False, kind="new")
    assert world.trainer.turn()


def test_a_kind_without_gain_is_tried_again_where_the_ring_holds_little(
    tmp_path: Path, room: Eagle3Room, trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, room, trained)
    world.ring = Ring(tmp_path / "ring", max_bytes=1 << 30, max_age_s=25, key=None)  # some 25 texts
    world.trainer = world.new_trainer()
    tried = []
    for number in range(7):
        world.say(8, nonsense, held_out=True)
        world.now -= 8
        world.say(20, nonsense, held_out=False)
        if world.trainer.turn():
            tried.append(number)
    assert tried == [0, 2, 6]
    assert not caplog.messages


def test_texts_that_go_before_enough_have_come_are_told_of_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(6):
        world.say(8, sentence, held_out=False)
        assert not world.trainer.turn()
        world.ring.remove(world.ring.paths())
    assert len(caplog.messages) == 1
    assert "raise draft.learning.max_bytes" in caplog.messages[0]


@pytest.mark.parametrize("attempt", range(10))
def test_a_poisoned_candidate_is_never_promoted(tmp_path: Path, room: Eagle3Room, trained: Path, attempt: int) -> None:
    """The tokens of what is learned from are shuffled; those of what it is judged by are true."""
    world = World(tmp_path, room, trained)
    world.num_texts = 1000 * attempt
    world.say(40, nonsense, held_out=False)
    world.say(12, sentence, held_out=True)
    world.run()
    assert world.versions.numbers() == [1]
    assert world.versions.serving() == 0
    assert "worse by" in world.versions.facts(1).verdict


def test_what_is_worse_on_another_kind_is_not_promoted(tmp_path: Path, room: Eagle3Room, trained: Path) -> None:
    world = World(tmp_path, room, trained)
    world.say(12, sentence, held_out=True, kind="old")
    world.say(40, other_sentence, held_out=False, kind="new")
    world.say(12, other_sentence, held_out=True, kind="new")
    world.run()
    facts = world.versions.facts(1)
    assert world.versions.serving() == 0
    assert facts.verdict.startswith("worse by")
    assert facts.verdict.endswith("on kind old")
    assert facts.kinds["new"].after > facts.kinds["new"].before


def test_own_data_is_learned_from_and_judged_by(tmp_path: Path, room: Eagle3Room, trained: Path) -> None:
    world = World(tmp_path, room, trained)
    samples = [sample_of(text("", sentence(random.Random(index)), "", 0), HIDDEN) for index in range(80)]
    world.trainer = world.new_trainer(OwnData(samples[10:], samples[:10]))
    world.say(40, other_sentence, held_out=False, kind="new")
    world.say(12, other_sentence, held_out=True, kind="new")
    world.run()
    kinds = world.versions.facts(1).kinds
    assert kinds.keys() == {"new", OWN_DATA}
    assert kinds[OWN_DATA].after > kinds[OWN_DATA].before - 1.5


def test_a_version_that_drafts_worse_than_the_one_before_is_rolled_back(
    tmp_path: Path, room: Eagle3Room, head: Path, trained: Path
) -> None:
    world = World(tmp_path, room, trained)
    bad = tmp_path / "bad"
    shutil.copytree(head, bad)
    world.versions.promote(world.versions.add(bad, VersionFacts(parent=0, created_at=1.0)), "by mistake")
    world.trainer = world.new_trainer()
    world.say(LOOKS[0] - 1, sentence, held_out=True)
    assert not world.trainer.turn()
    world.say(1, sentence, held_out=True)
    assert world.trainer.turn()
    assert world.versions.serving() == 0
    assert world.versions.history()[-1].reason.startswith("worse than version 0:")
    assert not world.trainer.turn()


@pytest.mark.parametrize("num_long", [0, LOOKS[0] - 1])
def test_texts_too_short_to_judge_by_hold_nothing_up(
    tmp_path: Path, room: Eagle3Room, head: Path, trained: Path, num_long: int
) -> None:
    world = World(tmp_path, room, trained)
    bad = tmp_path / "bad"
    shutil.copytree(head, bad)
    world.versions.promote(world.versions.add(bad, VersionFacts(parent=0, created_at=1.0)), "by mistake")
    world.trainer = world.new_trainer()
    world.say(num_long, sentence, held_out=True)
    world.say(LOOKS[-1], lambda dice: sentence(dice)[: PROMPT_TOKENS + 3], held_out=True)
    assert not world.trainer.turn()
    assert not world.trainer.turn()
    world.say(LOOKS[0] - num_long, sentence, held_out=True)
    assert world.trainer.turn()
    assert world.versions.serving() == 0


def test_what_a_person_has_promoted_stays(tmp_path: Path, room: Eagle3Room, head: Path, trained: Path) -> None:
    world = World(tmp_path, room, trained)
    bad = tmp_path / "bad"
    shutil.copytree(head, bad)
    number = world.versions.add(bad, VersionFacts(parent=0, created_at=1.0))
    world.versions.promote(number, "by hand", by_hand=True)
    world.say(LOOKS[-1], sentence, held_out=True)
    assert not world.trainer.turn()
    assert world.versions.serving() == number


def test_texts_are_deleted_after_use(world: World) -> None:
    world.say(30, sentence, held_out=False)
    world.say(60, sentence, held_out=True)
    first = set(world.ring.paths())
    for _ in range(2 * MAX_USES):
        world.run()
        world.say(30, sentence, held_out=False)
    left = [request_digest(each.request_id) for path, each in world.ring.read() if path in first]
    num_held_out = sum(int(digest, 16) < 0.5 * 16**16 for digest in left)
    assert num_held_out == MAX_TEXTS
    assert len(left) - num_held_out < 15


def test_a_request_that_is_forgotten_while_it_is_learned_from_is_in_no_version(world: World) -> None:
    world.say(40, sentence, held_out=False)
    world.say(12, sentence, held_out=True)
    first, *_ = (text.request_id for _, text in world.ring.read())
    world.trainer = world.new_trainer(on_progress=lambda *_: world.ring.forget(first) and None)
    world.run()
    assert world.versions.serving() == 1
    assert world.versions.facts(1).num_texts == 39
    assert request_digest(first) not in world.versions.facts(1).learned_from


def test_a_text_that_cannot_be_used_is_left_out(world: World) -> None:
    world.now += 1
    features = encode_features(torch.ones(TEXT_TOKENS, 6), 0)
    world.ring.append(LearnedText("x", "a", 8, tuple(range(100, 100 + TEXT_TOKENS)), features, finished_at=world.now))
    learned(world)
    assert world.versions.serving() == 1


def test_a_full_disk_changes_nothing_and_loses_no_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.say(40, sentence, held_out=False)
    world.say(12, sentence, held_out=True)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            world.run()
    assert (world.versions.serving(), world.versions.numbers()) == (0, [])
    assert len(world.ring.paths()) == 52
    world.trainer = world.new_trainer()
    world.run()
    assert world.versions.serving() == 1


class KilledError(BaseException):
    """What a kill leaves undone stays undone."""


@pytest.mark.parametrize("step", ["save_eagle3", "add", "promote", "keep"])
def test_a_kill_leaves_a_whole_version_serving(world: World, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.say(40, sentence, held_out=False)
    world.say(12, sentence, held_out=True)

    def kill(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        place = (
            "pilotfish.drafters.eagle3.train.save_eagle3"
            if step == "save_eagle3"
            else f"{Versions.__module__}.Versions.{step}"
        )
        patched.setattr(place, kill)
        with pytest.raises(KilledError):
            world.run()
    serving = Versions(world.folder).serving()
    load_eagle3(Versions(world.folder).head_folder(serving, world.head), num_target_layers=4)
    world.trainer = world.new_trainer()
    world.run()
    assert world.versions.serving() >= 1


def test_a_damaged_head_is_named_and_who_serves_stays(world: World) -> None:
    learned(world)
    path = world.versions.head_folder(1, world.head) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    world.say(LOOKS[0], sentence, held_out=True)
    with pytest.raises(ModelError, match="versions/1 is damaged"):
        world.run()
    assert world.versions.serving() == 1
