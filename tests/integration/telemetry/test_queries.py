"""Every query of the dashboard and of the alerts, against what the services really tell."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pilotfish.config import TelemetryConfig

FOLDER = Path(__file__).parents[3] / "observability"
SCRAPED_LABELS = {"instance", "job", "le"}
"""Prometheus adds the first two itself; `le` is every histogram's."""


def dashboard_queries() -> list[str]:
    dashboard = json.loads((FOLDER / "grafana" / "pilotfish.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [query.replace("$__rate_interval", "5m") for query in queries]


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


QUERIES = sorted({*dashboard_queries(), *(rule["expr"] for rule in alert_rules())})


class Told(dict[str, dict[str, set[str]]]):
    """Values of each label, by metric name."""

    def add(self, text: str) -> None:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = self.setdefault(sample.name, defaultdict(set))
                for name, value in sample.labels.items():
                    labels[name].add(value)


@pytest.fixture
def told(scrapes) -> Told:
    """All that the three services tell after a request with drafts."""
    found = Told()
    for text in (scrapes.after, scrapes.target, scrapes.draft):
        found.add(text)
    return found


def problems_of(query: str, told: Told) -> list[str]:
    """What a query asks for that nobody tells."""
    found: list[str] = []
    names: set[str] = set()

    def visit(expression: promql.Expr) -> None:
        if isinstance(expression, promql.MatrixSelector):
            expression = expression.vector_selector
        if isinstance(expression, promql.VectorSelector):
            names.add(str(expression.name))
            found.extend(_selector_problems(expression, told))
        if isinstance(expression, promql.AggregateExpr) and expression.modifier is not None:
            labels = set.union(SCRAPED_LABELS, *(told.get(name, {}) for name in _names_in(expression)))
            found.extend(f"by ({label}): no such label" for label in expression.modifier.labels if label not in labels)

    promql.walk(promql.parse(query), pre_visit=visit)
    return found if names else [*found, "it asks for nothing"]


def _names_in(expression: promql.Expr) -> set[str]:
    names: set[str] = set()

    def visit(part: promql.Expr) -> None:
        if isinstance(part, promql.MatrixSelector):
            part = part.vector_selector
        if isinstance(part, promql.VectorSelector):
            names.add(str(part.name))

    promql.walk(expression, pre_visit=visit)
    return names


def _selector_problems(selector: promql.VectorSelector, told: Told) -> list[str]:
    if selector.name not in told:
        return [f"no metric {selector.name}"]
    labels = told[selector.name]
    found = []
    for matcher in selector.matchers.matchers:
        if matcher.name in SCRAPED_LABELS:
            continue
        if matcher.value == "x":  # any
            continue
        # An expression of ours is a list of alternatives, each of which must exist.
        wanted = matcher.value.split("|")
        assert all(re.fullmatch(r"\w+", value) for value in wanted)
        missing = [value for value in wanted if value not in labels.get(matcher.name, ())]
        found.extend(f"{selector.name}: {matcher.name} is never {value}" for value in missing)
    return found


WRONG_QUERIES = (
    "pilotfish_no_such_metric",
    'pilotfish_replica_connected{pool="targets"}',
    'pilotfish_replica_circuit{state=~"open|ajar"} == 1',
    "sum by (colour) (rate(pilotfish_generation_tokens_total[5m]))",
    "histogram_quantile(0.5, sum by (le) (rate(pilotfish_time_to_first_token_seconds[5m])))",
    "1 + 1",
)


def test_every_query_asks_for_what_is_told(told) -> None:
    problems = {query: found for query in QUERIES if (found := problems_of(query, told))}
    assert not problems
    assert len(QUERIES) > 50
    assert all(problems_of(query, told) for query in WRONG_QUERIES), "the check finds nothing"


def test_no_alert_hangs_on_how_often_is_scraped() -> None:
    """Ten minutes are 40 scrapes of one cluster and 10 of another: a number of samples means nothing."""
    counted = re.compile(r"\b(changes|resets|count_over_time)\([^()]*\)\s*[<>=!]+\s*[\d.]+\s*($|and|or|unless)")
    assert counted.search("gain < 1 and changes(gain[10m]) > 10")
    assert not counted.search("changes(gain[10m]) > 0.25 * count_over_time(gain[10m])")
    assert not [rule["alert"] for rule in alert_rules() if counted.search(rule["expr"])]


def vllm_queries(prefix: str) -> list[str]:
    """What vLLM's published dashboards (examples/observability) and the Gateway API inference extension ask for."""
    histograms = ("e2e_request_latency_seconds", "inter_token_latency_seconds", "time_to_first_token_seconds")
    sums = ("queue_time_seconds", "prefill_time_seconds", "decode_time_seconds", "max_num_generation_tokens")
    queries = [
        "sum by (finished_reason, model_name) (increase(P:request_success_total[5m]))",
        "rate(P:iteration_tokens_total_count[5m])",
        "P:num_requests_running{model_name!='x'}",
        "P:num_requests_waiting{model_name!='x'}",
        "P:kv_cache_usage_perc{model_name!='x'}",
        "sum by (model_name) (rate(P:num_preemptions_total[5m]))",
        "sum by (block_size, num_gpu_blocks) (P:cache_config_info)",
        "sum by (max_lora, running_lora_adapters, waiting_lora_adapters) (P:lora_requests_info)",
        *(f"sum by (model_name) (rate(P:{each}_tokens_total[5m]))" for each in ("prompt", "generation")),
        *(f"sum by (model_name) (rate(P:request_{each}_sum[5m]))" for each in sums),
    ]
    for name in (*histograms, "request_prompt_tokens", "request_generation_tokens"):
        queries.append(f"histogram_quantile(0.9, sum by (le, model_name) (rate(P:{name}_bucket[5m])))")
        queries.append(f"sum(increase(P:{name}_sum[5m])) / sum(increase(P:{name}_count[5m]))")
    return [query.replace("P:", prefix) for query in queries]


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_"])
async def test_vllms_queries_need_only_the_prefix(prefix: str, run_stack, scrape_text) -> None:
    async with run_stack(TelemetryConfig(metrics_prefix=prefix)) as stack:
        await stack.ask()
        text = await scrape_text(stack.orchestrator.http_url)
    told = Told()
    told.add(text)
    assert not {query: found for query in vllm_queries(prefix) if (found := problems_of(query, told))}
    ours = {name for name in told if not name.startswith("process_")}
    assert all(name.startswith(prefix) and told[name]["model_name"] == {"emulated instant"} for name in ours)
    (num_blocks,) = told[f"{prefix}cache_config_info"]["num_gpu_blocks"]
    assert int(num_blocks) > 0


def test_alerts_say_how_bad_it_is_and_what_it_is() -> None:
    rules = alert_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
