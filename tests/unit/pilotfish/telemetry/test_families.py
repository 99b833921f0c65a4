from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from pilotfish.telemetry.families import by_label, counter, gauge, info, labelled_counter, labelled_gauge
from pilotfish.telemetry.registry import expose, new_registry


class Some(Collector):
    def collect(self):
        yield gauge("depth", "d", 2)
        yield counter("tokens", "t", 3)
        yield labelled_counter("rounds", "r", ("reason",), by_label({"fast": 4.0}))
        yield labelled_gauge("up", "u", ("pool", "replica"), {("draft", "a:1"): 1.0})
        yield info("build", "b", {"version": "1"})


def test_names_and_labels_as_prometheus_reads_them() -> None:
    registry = CollectorRegistry()
    registry.register(Some())
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert lines == [
        "pilotfish_depth 2.0",
        "pilotfish_tokens_total 3.0",
        'pilotfish_rounds_total{reason="fast"} 4.0',
        'pilotfish_up{pool="draft",replica="a:1"} 1.0',
        'pilotfish_build_info{version="1"} 1.0',
    ]


def test_registries_are_apart_and_know_their_process() -> None:
    first, second = new_registry(Some()), new_registry()
    assert b"pilotfish_depth" in expose(first).body
    assert b"pilotfish_depth" not in expose(second).body
    assert b"process_resident_memory_bytes" in expose(second).body
    assert expose(first).content_type.startswith("text/plain")
    assert expose(first, "application/openmetrics-text").content_type.startswith("application/openmetrics-text")
