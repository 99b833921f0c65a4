import errno
import threading
from pathlib import Path

import pytest

from pilotfish.errors import ModelError
from pilotfish.models.store.model_store import ModelCache, explain_storage_errors
from pilotfish.models.store.progress import PullProgress, PullStage, ignore_progress


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(tmp_path / "cache")


def publish(cache: ModelCache, content: str) -> None:
    with cache.partial_folder("m") as partial:
        (partial / "file").write_text(content)
        cache.publish("m", partial, {"name": "m"})


def test_published_model_is_complete_and_alone(cache: ModelCache) -> None:
    assert not cache.is_complete("m")
    publish(cache, "abc")
    assert cache.is_complete("m")
    assert [path.name for path in (cache.root / "models").iterdir()] == ["m"]


@pytest.mark.parametrize("damage", ["truncate", "remove", "manifest"])
def test_damage_is_noticed_and_replaced(cache: ModelCache, damage: str) -> None:
    publish(cache, "abc")
    file = cache.folder("m") / "file"
    if damage == "truncate":
        file.write_text("a")
    elif damage == "remove":
        file.unlink()
    else:
        (cache.folder("m") / "pilotfish.json").write_text("[]")
    assert not cache.is_complete("m")
    publish(cache, "abcd")
    assert cache.is_complete("m")
    assert file.read_text() == "abcd"


def test_failed_write_leaves_nothing(cache: ModelCache) -> None:
    def fail(partial: Path) -> None:
        (partial / "file").write_text("x")
        raise RuntimeError

    with pytest.raises(RuntimeError), cache.partial_folder("m") as partial:
        fail(partial)
    assert list((cache.root / "models").iterdir()) == []


def test_leftovers_of_killed_pulls_are_removed(cache: ModelCache) -> None:
    leftover = cache.root / "models" / ".m.partial-killed"
    leftover.mkdir(parents=True)
    publish(cache, "abc")
    assert not leftover.exists()


def test_lock_keeps_others_out_and_says_that_it_waits(cache: ModelCache) -> None:
    waiting = threading.Event()
    order: list[str] = []

    def report(progress: PullProgress) -> None:
        assert progress.stage is PullStage.WAIT
        waiting.set()

    def second() -> None:
        with cache.lock("m", report):
            order.append("second")

    with cache.lock("m", ignore_progress):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(timeout=30)
        order.append("first")
    thread.join(timeout=30)
    assert order == ["first", "second"]


def test_too_little_space(cache: ModelCache) -> None:
    cache.require_space(1)
    with pytest.raises(OSError) as caught:
        cache.require_space(1 << 60)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "no space left .*460 MB.*PILOTFISH_CACHE"),
        (errno.EDQUOT, "no space left"),
        (errno.EROFS, "not writable.*PILOTFISH_CACHE"),
        (errno.EACCES, "not writable.*cache_dir"),
        (errno.EIO, "cannot be used"),
    ],
)
def test_storage_errors_say_what_to_do(tmp_path: Path, code: int, message: str) -> None:
    with pytest.raises(ModelError, match=message), explain_storage_errors(tmp_path, 460_000_000):
        raise OSError(code, "reason")


def test_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    cache = ModelCache(tmp_path / "cache")
    with pytest.raises(ModelError, match="cannot be used"), explain_storage_errors(cache.root):
        publish(cache, "abc")
