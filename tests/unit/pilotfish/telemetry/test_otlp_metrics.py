from opentelemetry.sdk.metrics.export import Gauge, Histogram, Sum
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as PrometheusHistogram

from pilotfish.telemetry.families import by_label, gauge, info, labelled_counter
from pilotfish.telemetry.otlp_metrics import metrics_data

START_NS, NOW_NS = 1_000, 2_000


def converted(*families):
    data = metrics_data(families, Resource({}), START_NS, NOW_NS)
    return {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}


def test_counters_grow_from_the_start_and_gauges_are_of_now() -> None:
    metrics = converted(
        labelled_counter("rounds", "r", ("reason",), by_label({"a": 1.0, "b": 2.0})), gauge("depth", "d", 3)
    )
    counter, depth = metrics["pilotfish_rounds"].data, metrics["pilotfish_depth"].data
    assert isinstance(counter, Sum)
    assert counter.is_monotonic
    assert {point.attributes["reason"]: point.value for point in counter.data_points} == {"a": 1.0, "b": 2.0}
    assert {(point.start_time_unix_nano, point.time_unix_nano) for point in counter.data_points} == {(START_NS, NOW_NS)}
    assert isinstance(depth, Gauge)
    assert [point.value for point in depth.data_points] == [3]


def test_facts_are_a_gauge_that_is_1() -> None:
    (point,) = converted(info("build", "b", {"version": "2"}))["pilotfish_build"].data.data_points
    assert (point.value, point.attributes) == (1, {"version": "2"})


def test_histograms_count_by_bucket_for_each_combination_of_labels() -> None:
    registry = CollectorRegistry()
    prometheus = PrometheusHistogram("pilotfish_time_seconds", "t", ("pool",), buckets=(1, 2), registry=registry)
    for pool, value in (("a", 0.5), ("a", 1.0), ("a", 9), ("b", 1.5)):
        prometheus.labels(pool).observe(value)
    metric = converted(*registry.collect())["pilotfish_time_seconds"]
    assert metric.unit == "s"
    assert isinstance(metric.data, Histogram)
    points = {point.attributes["pool"]: point for point in metric.data.data_points}
    assert (points["a"].bucket_counts, points["b"].bucket_counts) == ([2, 0, 1], [0, 1, 0])
    assert points["a"].explicit_bounds == [1.0, 2.0]
    assert (points["a"].count, points["a"].sum) == (3, 10.5)
