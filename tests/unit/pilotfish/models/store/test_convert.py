"""A GGUF file becomes a folder that computes and splits text as the model did, or is refused."""

from pathlib import Path

import pytest
import torch
from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.convert import convert_gguf
from pilotfish.models.store.pull import convert_in_subprocess

NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Of a layer's weights, as llama.cpp calls them."""
TOKENS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "<end>"]


@pytest.fixture
def model() -> Qwen2ForCausalLM:
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        dtype=torch.bfloat16,
    )
    return Qwen2ForCausalLM(config).to(torch.bfloat16).eval()


def write(path: Path, model: Qwen2ForCausalLM, rule: str | None, architecture: str = "qwen2") -> None:
    """The model as llama.cpp's converter writes it; its tokens are bytes."""
    writer, config = GGUFWriter(path, architecture), model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    if rule is not None:
        writer.add_tokenizer_pre(rule)
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.NORMAL] * (len(TOKENS) - 1) + [TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(TOKENS) - 1)
    for name, tensor in model.state_dict().items():
        name = name.removeprefix("model.")
        if name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            (theirs,) = (rest.replace(ours, other) for ours, other in NAMES.items() if rest.startswith(ours))
            name = f"blk.{layer}.{theirs}"
        else:
            name = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}.get(
                name, "output.weight"
            )
        writer.add_tensor(name, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("rule", "digits"), [("qwen2", 2), ("smollm", 2), ("gpt-2", 1)])
def test_the_folder_computes_and_splits_as_the_model_did(
    model: Qwen2ForCausalLM, tmp_path: Path, rule: str, digits: int
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    write(tmp_path / "tiny.gguf", model, rule)
    convert_gguf(tmp_path / "tiny.gguf", folder)
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    token_ids = torch.tensor([[5, 9, 3, 77, 200]])
    assert torch.equal(again(token_ids).logits, model(token_ids).logits)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    split = tokenizer.pre_tokenizer.pre_tokenize_str("in 12")
    assert len([piece for piece, _ in split if any(char.isdigit() for char in piece)]) == digits
    assert tokenizer.decode(tokenizer.encode("Grüße 12").ids) == "Grüße 12"


@pytest.mark.parametrize("rule", ["a-rule-of-tomorrow", None])
def test_a_tokenizer_of_an_unknown_rule_is_refused(model: Qwen2ForCausalLM, tmp_path: Path, rule: str | None) -> None:
    write(tmp_path / "tiny.gguf", model, rule)
    with pytest.raises(UnsupportedModelError, match=f"is not known here \\({rule}\\): take the model's safetensors"):
        convert_in_subprocess(tmp_path / "tiny.gguf", tmp_path)


def test_an_architecture_that_transformers_cannot_read_is_refused(model: Qwen2ForCausalLM, tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", model, "qwen2", architecture="martian")
    with pytest.raises(UnsupportedModelError, match=r"tiny\.gguf cannot be read.*martian"):
        convert_gguf(tmp_path / "tiny.gguf", tmp_path)


@pytest.mark.parametrize("content", [b"hello", b"GGUF\3\0\0\0" + 2 * (1).to_bytes(8, "little")])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=r"broken\.gguf is no GGUF file, or only a part of one"):
        convert_gguf(file, tmp_path)
