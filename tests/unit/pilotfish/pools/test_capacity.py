"""Room for the pools is checked before anything starts, and what is missing is named."""

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError
from pilotfish.pools.capacity import Node, check_room, demand
from pilotfish.pools.options import pools, scaling_options

TARGET_NODE = Node({"CPU": 8, "GPU": 2}, {"pool": "target"})
DRAFT_NODE = Node({"CPU": 8, "GPU": 2}, {"pool": "draft"})
LABELLED = ("deployment.target.labels={pool: target}", "deployment.draft.labels={pool: draft}")


def check(nodes: list[Node], *overrides: str) -> None:
    config = load_config(overrides=[*LABELLED, *overrides])
    check_room([demand(scaling_options(config, pool)) for pool in pools(config)], nodes)


def test_what_fits_is_accepted() -> None:
    check([TARGET_NODE, DRAFT_NODE], "deployment.target.num_gpus=2", "deployment.draft.num_gpus=0.5")
    check([TARGET_NODE, DRAFT_NODE], "draft.num_replicas=4", "deployment.draft.num_gpus=0.5")


def test_too_many_gpus_name_the_pool_its_nodes_and_what_to_change() -> None:
    with pytest.raises(ConfigError) as refused:
        check([TARGET_NODE, TARGET_NODE, DRAFT_NODE], "target.num_replicas=3", "deployment.target.num_gpus=2")
    message = str(refused.value)
    assert "the target pool wants 3 replicas of 0.1 CPU, 2 GPU each" in message
    assert "its 2 nodes with pool=target have room for 2" in message
    assert "lower target.num_replicas or deployment.target.num_gpus" in message
    assert "draft" not in message


def test_a_label_that_no_node_has_is_named() -> None:
    with pytest.raises(ConfigError, match=r"wants nodes with pool=draft, and the nodes have pool=target"):
        check([TARGET_NODE])
    with pytest.raises(ConfigError, match=r"none of the 1 nodes has such a label.*deployment\.target\.labels"):
        check([Node({"CPU": 8})])


def test_pools_on_the_same_nodes_share_what_there_is() -> None:
    everything = Node({"CPU": 8, "GPU": 2}, {"pool": "target"})
    same = "deployment.draft.labels={pool: target}"
    check([everything], same, "deployment.target.num_gpus=1", "deployment.draft.num_gpus=1")
    with pytest.raises(ConfigError, match=r"draft pool wants .* room for 0 beside the other pools"):
        check([everything], same, "deployment.target.num_gpus=2", "deployment.draft.num_gpus=0.5")


def test_custom_resources_and_limits_per_node_count() -> None:
    with pytest.raises(ConfigError, match="1 fish each"):
        check([TARGET_NODE, DRAFT_NODE], "deployment.draft.resources={fish: 1}")
    with pytest.raises(ConfigError, match="1 on a node, and its 1 node "):
        check([TARGET_NODE, DRAFT_NODE], "draft.num_replicas=2", "deployment.draft.max_replicas_per_node=1")


def test_a_placement_group_is_one_replica_on_one_node() -> None:
    options = {
        "name": "target",
        "num_replicas": 1,
        "placement_group_bundles": [{"CPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}],
        "placement_group_bundle_label_selector": [{"pool": "target"}],
    }
    check_room([demand(options)], [TARGET_NODE])
    with pytest.raises(ConfigError, match="room for 0"):
        check_room([demand(options)], [Node({"CPU": 8, "GPU": 1}, {"pool": "target"})] * 2)
