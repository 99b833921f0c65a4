from __future__ import annotations

from tests.support.kubernetes.patches import merged, strategically_merged


def test_merge_patches() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None, "e": 4}, "d": [5]}) == {
        "a": {"c": 2, "e": 4},
        "d": [5],
    }


def test_strategic_patches_merge_lists_by_key() -> None:
    pod = {
        "containers": [{"name": "a", "image": "x:1", "env": [{"name": "OLD", "value": "1"}], "command": ["p"]}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
        "tolerations": [{"key": "old"}],
    }
    patch = {
        "$setElementOrder/volumes": [{"name": "n"}, {"name": "v"}],
        "containers": [{"name": "a", "image": "x:2", "command": None, "env": [{"name": "OLD", "$patch": "delete"}]}],
        "volumes": [
            {"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}},
            {"name": "w", "$patch": "delete"},
            {"name": "n", "emptyDir": {}},
        ],
        "tolerations": [{"key": "new"}],
    }
    assert strategically_merged(pod, patch) == {
        "containers": [{"name": "a", "image": "x:2", "env": []}],
        "volumes": [{"name": "n", "emptyDir": {}}, {"name": "v", "secret": {"secretName": "s"}}],
        "tolerations": [{"key": "new"}],
    }


def test_a_strategic_patch_may_replace() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
    assert strategically_merged(
        {"strategy": strategy}, {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    ) == {"strategy": {"type": "Recreate"}}
    assert strategically_merged({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}) == {"a": {"c": 2}}
