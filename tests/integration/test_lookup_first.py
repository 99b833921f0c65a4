"""A lookup before the draft pool, through real services: the same text with fewer questions, also without the pool."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.messages import Proposal
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.recorded_drafter import recorded_drafter
from tests.support.stack import running_stack
from tests.support.threaded_engine import ThreadedEngine

REQUEST = {"text": "to be or not to be, to be or not to be, to be or", "max_tokens": 120, "seed": 11}
PLAIN = {"mode": pb.SPECULATION_MODE_OFF}
DRAFTED = {"mode": pb.SPECULATION_MODE_ON}

MakeConfig = Callable[[str], Config]


@pytest.fixture
def make_config(target_folder: Path, tmp_path: Path) -> MakeConfig:
    """A target, itself as its draft model, and a lookup before that."""

    def make(lookup: str) -> Config:
        service = {"model": str(target_folder), "engine": {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}}
        return config_from_dict(
            {
                "target": service,
                "draft": {**service, "proposer": "model"},
                "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "lookup": lookup}},
                "cache_dir": str(tmp_path),
            }
        )

    return make


@pytest.mark.parametrize("temperature", [0.0, 0.9])
async def test_a_text_that_repeats_itself_asks_the_pool_less_and_is_the_same(
    make_config: MakeConfig, temperature: float
) -> None:
    num_asked = {}
    for lookup in ("none", "suffix"):
        config, proposals = make_config(lookup), list[Proposal]()
        engines = {"target_engine": ThreadedEngine(build_engine(config, "target"))}
        async with running_stack(config, **engines, draft_engine=recorded_drafter(config, proposals)) as stack:
            plain = await stack.ask(**REQUEST, temperature=temperature, speculation=PLAIN)
            assert not proposals
            drafted = await stack.ask(**REQUEST, temperature=temperature, speculation=DRAFTED)
            assert drafted.token_ids == plain.token_ids
            assert drafted.speculation.num_rounds < len(plain.token_ids) / 2
            num_asked[lookup] = len(proposals)
    assert num_asked["none"] > 10
    if temperature == 0:
        assert num_asked["suffix"] < 0.7 * num_asked["none"]


async def test_the_lookup_goes_on_when_the_pool_dies(make_config: MakeConfig) -> None:
    config, proposals = make_config("suffix"), list[Proposal]()
    engines = {"target_engine": ThreadedEngine(build_engine(config, "target"))}
    async with running_stack(config, **engines, draft_engine=recorded_drafter(config, proposals)) as stack:
        plain = await stack.ask(**REQUEST, temperature=0, speculation=PLAIN)
        await stack.draft.drain_and_stop(0)
        drafted = await stack.ask(**REQUEST, temperature=0, speculation=DRAFTED)
        assert drafted.token_ids == plain.token_ids
        assert drafted.speculation.num_accepted_tokens > 40
        assert not proposals
