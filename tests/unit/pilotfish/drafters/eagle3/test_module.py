"""The head's mathematics against transformers' own Llama layer, and what may depend on what."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from pilotfish.drafters.eagle3.module import Eagle3Head
from tests.support.tiny_models import tiny_eagle3_config

HIDDEN = 16


@pytest.fixture
def head() -> Eagle3Head:
    torch.manual_seed(1)
    config = tiny_eagle3_config(
        hidden_size=HIDDEN, intermediate_size=24, head_dim=4, vocab_size=20, draft_vocab_size=6, rope_theta=500.0
    )
    return Eagle3Head(config).requires_grad_(False)


def test_equals_a_llama_layer_when_the_embedding_is_ignored(head: Eagle3Head) -> None:
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        num_hidden_layers=1,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        attn_implementation="sdpa",
    )
    layer = LlamaDecoderLayer(config, 0).requires_grad_(False).eval()
    attention, own = layer.self_attn, head.midlayer.self_attn
    for name in ("q_proj", "k_proj", "v_proj"):
        getattr(own, name).weight[:, :HIDDEN] = 0
        getattr(own, name).weight[:, HIDDEN:] = getattr(attention, name).weight
    own.o_proj.weight.copy_(attention.o_proj.weight)
    head.midlayer.mlp.load_state_dict(layer.mlp.state_dict())
    head.midlayer.hidden_norm.weight.copy_(layer.input_layernorm.weight.uniform_())
    head.midlayer.post_attention_layernorm.weight.copy_(layer.post_attention_layernorm.weight.uniform_())
    hidden, positions = torch.randn(7, HIDDEN), torch.arange(3, 10)
    rotary = LlamaRotaryEmbedding(config)(hidden[None], positions[None])
    mask = torch.full((7, 7), -torch.inf).triu(1)[None, None]
    expected = layer(hidden[None], position_embeddings=rotary, attention_mask=mask)
    output, _ = head(torch.randn(7, HIDDEN), hidden, positions)
    torch.testing.assert_close(output, expected.reshape(7, HIDDEN), atol=1e-5, rtol=1e-5)


def test_a_row_depends_on_rows_before_it_only(head: Eagle3Head) -> None:
    embeddings, hidden, positions = torch.randn(6, HIDDEN), torch.randn(6, HIDDEN), torch.arange(6)
    whole, _ = head(embeddings, hidden, positions)
    part, _ = head(embeddings[:4], hidden[:4], positions[:4])
    torch.testing.assert_close(whole[:4], part)
    embeddings[0] += 1
    changed, _ = head(embeddings, hidden, positions)
    assert not torch.allclose(changed[5], whole[5])


def test_logits_are_of_the_normed_output(head: Eagle3Head) -> None:
    output, logits = head(torch.randn(2, HIDDEN), head.fuse(torch.randn(2, 3 * HIDDEN)), torch.arange(2))
    normed = output / (output.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(logits, normed @ head.lm_head.weight.T)


def test_draft_vocabulary_maps_both_ways(head: Eagle3Head) -> None:
    head.set_draft_vocabulary(torch.tensor([1, 2, 5, 6, 11, 19]))
    assert head.target_token_ids.tolist() == [1, 2, 5, 6, 11, 19]
    assert head.t2d.nonzero().squeeze(1).tolist() == [1, 2, 5, 6, 11, 19]
    for wrong in ([1, 2, 5, 6, 11], [2, 1, 5, 6, 11, 19], [1, 1, 5, 6, 11, 19]):
        with pytest.raises(ValueError, match="ascending"):
            head.set_draft_vocabulary(torch.tensor(wrong))
