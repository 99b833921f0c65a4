"""What a config.json leaves out: sizes of transformers' models that write text, by model_type.

Writes pilotfish/models/store/config_defaults.json from the installed transformers, for processes that do without it.
"""

import json
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

FILE = Path(__file__).parents[1] / "pilotfish/models/store/config_defaults.json"
NAMES = (
    *("vocab_size", "max_position_embeddings", "hidden_size", "intermediate_size"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    "original_max_position_embeddings",
)


def row_of(kind: type[Any]) -> dict[str, Any]:
    """The default of each name, or the architecture's own name of it and the default."""
    if kind is AutoConfig:  # the language model within is of any kind, which its own model_type tells
        return {}
    if "text_config" in kind.sub_configs:
        return row_of(kind.sub_configs["text_config"])
    row: dict[str, Any] = {}
    for name in NAMES:
        own = kind.attribute_map.get(name, name)
        field = kind.__dataclass_fields__.get(own)
        default = field.default if field is not None and isinstance(field.default, int) else None
        if own != name:
            row[name] = [own, default]
        elif default is not None:
            row[name] = default
    return row


def rows() -> dict[str, dict[str, Any]]:
    """The row of every model that writes text, and of the language models within those."""
    kinds = {
        name: CONFIG_MAPPING[name]
        for name in {**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    }
    texts = [kind.sub_configs["text_config"] for kind in kinds.values() if "text_config" in kind.sub_configs]
    kinds |= {kind.model_type: kind for kind in texts if kind is not AutoConfig}
    return {name: row for name, kind in sorted(kinds.items()) if (row := row_of(kind))}


def main() -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
