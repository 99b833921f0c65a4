"""What a replica tells Prometheus of its load."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from pilotfish.rpc.frames import Service
from pilotfish.rpc.handshake import Welcome
from pilotfish.rpc.replica.metrics import ReplicaCollector
from pilotfish.rpc.replica.observer import ReplicaObserver
from pilotfish.types import Limits, LoadReport, ModelInfo


class Streams(NamedTuple):
    """A server with this load."""

    load: LoadReport
    welcome: Welcome = Welcome(
        model=ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=64, max_context_tokens=512),
        limits=Limits(max_draft_tokens=8, max_sequences=64),
        replica_id="replica-1",
    )
    observer: ReplicaObserver = ReplicaObserver()
    num_connections: int = 1


@pytest.mark.parametrize("service", ["target", "draft"])
def test_it_tells_of_grammars_that_its_compiler_died_of(service: Service) -> None:
    registry = CollectorRegistry()
    registry.register(ReplicaCollector(service, Streams(LoadReport(num_grammar_deaths=3))))
    assert registry.get_sample_value("pilotfish_engine_grammar_compiler_deaths_total") == 3
