"""YAML files as people write them: a key that stands there twice is a mistake, of which YAML keeps the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from pilotfish.errors import ConfigError


def read_yaml(path: Path, what: str) -> Any:
    """What a YAML file holds; None: nothing.

    what: the file is, for messages. Raises ConfigError where it cannot be read, is none or repeats a key.
    """
    try:
        # A SafeLoader.
        return yaml.load(path.read_text(encoding="utf-8"), UniqueKeyLoader)
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{path} is not YAML: {place}{error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply for {what}") from None


class UniqueKeyLoader(yaml.SafeLoader):
    """A SafeLoader that refuses repeated keys. Merged ones (`<<`) may be overridden: they are not written there."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise ComposerError(None, None, f"the key {key.value} is here twice", key.start_mark)
            seen.add((key.tag, key.value))
        return node
