import threading

from orchestrator.replicas.directory import ReplicaDirectory
from pilotfish.config import Config, OrchestratorConfig


def test_fixed_addresses_become_replicas() -> None:
    config = Config(
        orchestrator=OrchestratorConfig(target_addresses=("a:1", "b:2"), draft_addresses=("c:3",)), cache_dir="unused"
    )
    directory = ReplicaDirectory.from_config(config)
    assert directory.replicas("target") == {"a:1": "a:1", "b:2": "b:2"}
    assert directory.replicas("draft") == {"c:3": "c:3"}


def test_subscribers_hear_of_changes_of_their_pool_only() -> None:
    directory = ReplicaDirectory()
    heard: list[str] = []
    directory.subscribe("target", lambda: heard.append("target"))
    directory.subscribe("draft", lambda: heard.append("draft"))
    directory.set_replicas("draft", {"r": "a:1"})
    assert heard == ["draft"]


def test_setting_the_same_replicas_again_is_no_change() -> None:
    directory = ReplicaDirectory()
    heard: list[int] = []
    directory.subscribe("target", lambda: heard.append(1))
    directory.set_replicas("target", {"r": "a:1"})
    directory.set_replicas("target", {"r": "a:1"})
    assert heard == [1]


def test_an_ended_subscription_hears_nothing() -> None:
    directory = ReplicaDirectory()
    heard: list[int] = []
    unsubscribe = directory.subscribe("target", lambda: heard.append(1))
    unsubscribe()
    unsubscribe()
    directory.set_replicas("target", {"r": "a:1"})
    assert heard == []


def test_what_is_read_is_a_copy() -> None:
    directory = ReplicaDirectory()
    replicas = {"r": "a:1"}
    directory.set_replicas("target", replicas)
    replicas["s"] = "b:2"
    assert directory.replicas("target") == {"r": "a:1"}


def test_a_subscriber_may_read_the_directory_while_another_thread_writes() -> None:
    directory = ReplicaDirectory()
    seen: list[dict[str, str]] = []
    directory.subscribe("target", lambda: seen.append(dict(directory.replicas("target"))))
    writer = threading.Thread(target=directory.set_replicas, args=("target", {"r": "a:1"}))
    writer.start()
    writer.join(timeout=10)
    assert seen == [{"r": "a:1"}]
