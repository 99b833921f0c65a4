"""Keys of a Serve file that Ray Serve does not know: it reads the file without them."""

from collections.abc import Iterator
from typing import Any

from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema


def unknown_keys(serve_file: dict[str, Any]) -> list[str]:
    """Their paths. Raises pydantic's ValidationError for values that Serve refuses."""
    unknown = list(_lost(serve_file, ServeDeploySchema.model_validate(serve_file).model_dump(exclude_unset=True)))
    for application in serve_file["applications"]:
        for deployment in application["deployments"]:
            scaling = deployment.get("autoscaling_config", {})  # a plain dictionary in the schema
            unknown += _lost(scaling, AutoscalingConfig.model_validate(scaling).model_dump(exclude_unset=True))
    return unknown


def _lost(written: Any, read: Any, path: str = "") -> Iterator[str]:
    if isinstance(written, dict):
        for key, value in written.items():
            if key in read:
                yield from _lost(value, read[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(written, list):
        for index, value in enumerate(written):
            yield from _lost(value, read[index], f"{path}.{index}")
