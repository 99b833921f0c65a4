import random

from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference

from pilotfish.telemetry.families import histogram
from pilotfish.telemetry.histogram import Histogram


def test_it_tells_what_prometheus_own_histogram_tells() -> None:
    bounds = (0.01, 0.1, 1.0)
    registry = CollectorRegistry()
    reference = Reference("pilotfish_x", "text", buckets=bounds, registry=registry)
    ours = Histogram(bounds)
    values = [*bounds, 0.0, 7.0, *(random.Random(1).expovariate(3) for _ in range(200))]
    for value in values:
        reference.observe(value)
        ours.add(value)
    (expected,) = registry.collect()
    wanted = {(s.name, s.labels.get("le")): s.value for s in expected.samples if not s.name.endswith("_created")}
    actual = {(s.name, s.labels.get("le")): s.value for s in histogram("x", "text", ours).samples}
    assert actual == wanted
    assert ours.count == len(values)


def test_one_value_can_count_for_several() -> None:
    several, single = Histogram((1, 2)), Histogram((1, 2))
    several.add(1.5, times=3)
    for _ in range(3):
        single.add(1.5)
    assert (several.counts, several.total) == (single.counts, single.total)
