"""YAML files as people write them: a key that stands there twice is a mistake, of which YAML keeps the last."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError


class UniqueKeyLoader(yaml.SafeLoader):
    """yaml.SafeLoader that refuses repeated keys. Merged ones (`<<`) may be overridden: they are not written there."""

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
