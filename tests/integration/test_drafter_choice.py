"""A target with a lookup of its own beside a draft pool with a head: proposer `auto` gives requests either."""

from pathlib import Path

from pilotfish.config import config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.stack import running_stack
from tests.support.threaded_engine import ThreadedEngine

REQUEST = {"text": "The pilot fish swims ahead; the big one decides.", "max_tokens": 60, "temperature": 0.9, "seed": 11}


async def test_the_target_and_the_pool_both_draft_and_the_text_stays(
    target_folder: Path, head_folder: Path, tmp_path: Path
) -> None:
    service = {"model": str(target_folder), "engine": {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}}
    drafter = {"proposer": "none", "lookup": "suffix"}
    config = config_from_dict(
        {
            "target": {**service, "feature_layers": [0, 1, 1], "drafter": drafter},
            "draft": {"proposer": "eagle3", "head": str(head_folder), **service},
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "mode": "on"}},
            "cache_dir": str(tmp_path),
        }
    )
    target, pool = build_engine(config, "target"), build_engine(config, "draft")
    async with running_stack(config, target_engine=ThreadedEngine(target), draft_engine=ThreadedEngine(pool)) as stack:
        plain = await stack.ask(**REQUEST, speculation={"mode": pb.SPECULATION_MODE_OFF})
        steps = []
        for _ in range(4):
            before = pool.load().num_steps
            drafted = await stack.ask(**REQUEST)
            assert drafted.token_ids == plain.token_ids
            steps.append(pool.load().num_steps - before)
    assert steps[0] == 0, "the target's own comes first"
    assert any(steps), "the pool was tried"
