"""The builders that `serve deploy` imports, without a Ray."""

import pytest
from ray.serve._private.build_app import build_app

from pilotfish.config import load_config
from pilotfish.errors import ConfigError
from pilotfish.pools.options import APPLICATIONS, BUILDERS, serve_file
from pilotfish.serve_app import build_draft, build_orchestrator, build_target, build_trainer

BY_PATH = {
    "pilotfish.serve_app:build_target": build_target,
    "pilotfish.serve_app:build_draft": build_draft,
    "pilotfish.serve_app:build_orchestrator": build_orchestrator,
    "pilotfish.serve_app:build_trainer": build_trainer,
}


def deployments(application, name: str = "pilotfish") -> dict:
    return {each.name: each for each in build_app(application, name=name).deployments}


def test_wrong_args_are_refused_by_name() -> None:
    for builder in BY_PATH.values():
        with pytest.raises(ConfigError, match=r"target\.colour"):
            builder({"target": {"colour": "blue"}})


def test_each_listed_application_has_the_deployment_that_it_lists() -> None:
    overrides = [
        "deployment.draft.autoscaling.max_replicas=3",
        "deployment.target.labels={pool: target}",
        "draft.learning.enabled=true",
    ]
    listed = serve_file(load_config(overrides=overrides))["applications"]
    assert {application["import_path"] for application in listed} == set(BUILDERS.values())
    for application in listed:
        built = deployments(BY_PATH[application["import_path"]](application["args"]), application["name"])
        (deployment,) = application["deployments"]
        assert set(built) == {deployment["name"]}
        assert APPLICATIONS[deployment["name"]] == application["name"]
