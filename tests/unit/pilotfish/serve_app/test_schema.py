"""Keys that Ray Serve would ignore are refused."""

from copy import deepcopy
from typing import Any

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError
from pilotfish.pools.options import serve_file
from pilotfish.serve_app.check import check_serve_file


def generated() -> dict[str, Any]:
    return serve_file(
        load_config(
            overrides=[
                "deployment.target.autoscaling.max_replicas=3",
                "deployment.draft.labels={pool: draft}",
                "deployment.draft.surge_percent=100",
                "orchestrator.num_replicas=2",
            ]
        )
    )


def test_what_is_generated_is_accepted() -> None:
    read = check_serve_file(generated())
    assert [application.name for application in read.applications] == [
        "pilotfish-target",
        "pilotfish-draft",
        "pilotfish",
    ]


def at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values[int(part) if part.isdigit() else part]
    return values


@pytest.mark.parametrize(
    ("section", "key", "said"),
    [
        ("applications.0", "importpath", "applications.0.importpath: .*did you mean import_path"),
        ("applications.1.deployments.0", "num_replica", "deployments.0.num_replica: .*did you mean num_replicas"),
        ("applications.1.deployments.0", "colour", "no such key$"),
        ("applications.1.deployments.0.ray_actor_options", "num_gpu", "ray_actor_options.num_gpu: .*num_gpus"),
        ("applications.0.deployments.0.autoscaling_config", "max_replica", "autoscaling_config.max_replica: "),
        ("applications.0.deployments.0.autoscaling_config.policy", "policy_func", "policy.policy_func: "),
        ("logging_config", "enable_access_logs", "logging_config.enable_access_logs: "),
    ],
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(section: str, key: str, said: str) -> None:
    values = generated()
    at(values, section)[key] = 1
    with pytest.raises(ConfigError, match=said):
        check_serve_file(values)


def test_arguments_are_checked_as_a_configuration() -> None:
    values = deepcopy(generated())
    values["applications"][0]["args"]["target"]["modle"] = "x"
    with pytest.raises(ConfigError, match=r"args of application pilotfish-target: target\.modle: .*model"):
        check_serve_file(values)
