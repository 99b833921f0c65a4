"""Packed rows give what each conversation and each draft alone gives."""

from pathlib import Path

import torch
from packed_training.parallel_head import ParallelHead, Places, save_parallel_head
from packed_training.target import PackedTarget
from packed_training.tokens import Rows, pack, read_tokens, write_tokens
from torch.nn import functional

from pilotfish.drafters.eagle3.module import Eagle3Head, Rotary
from pilotfish.models.loading import LoadedModel
from pilotfish.models.store.tensor_folder import read_tensors
from pilotfish.training.data.conversations import Conversation
from tests.support.tiny_llama import tiny_llama
from tests.support.tiny_models import tiny_eagle3_config

CONVERSATIONS = [
    Conversation(3, list(range(5, 16))),
    Conversation(1, list(range(30, 37))),
    Conversation(4, list(range(40, 60))),
]
NUM_SLOTS, MASK_TOKEN_ID = 3, 2


def packed_target(folder: Path) -> PackedTarget:
    loaded = LoadedModel(tiny_llama(spread=2.0), folder, "tiny", 64, 128, "")
    return PackedTarget(loaded, (0, 1))


def tiny_head(target: PackedTarget) -> ParallelHead:
    head = ParallelHead(tiny_eagle3_config(), MASK_TOKEN_ID, list(target.loaded.model.model.layers)).float()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return head.requires_grad_(False)


def packed() -> Rows:
    rows = pack(CONVERSATIONS, 40)
    assert len(rows) == 1
    return rows


def test_a_file_of_tokens_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_tokens(CONVERSATIONS, tmp_path / "tokens.npz")
    read = read_tokens(tmp_path / "tokens.npz")
    assert [(each.prompt_len, list(each.token_ids)) for each in read] == [
        (each.prompt_len, each.token_ids) for each in CONVERSATIONS
    ]


def test_rows_hold_every_token_once_and_drafts_start_where_the_answer_is_decided() -> None:
    rows = packed()
    starts = [0, 11, 18]
    expected = {start + each.prompt_len - 1 for start, each in zip(starts, CONVERSATIONS, strict=True)}
    assert rows.token_ids[0, :38].tolist() == [token for each in CONVERSATIONS for token in each.token_ids]
    # The second one's answer begins at its first token, which has no state before it.
    assert set(rows.starts_draft[0].nonzero().flatten().tolist()) & (expected | {12}) == expected - {11} | {12}
    assert int(rows.starts_draft.sum()) == 9 + 6 + 17


def test_the_target_computes_a_conversation_as_if_it_were_alone(tmp_path: Path) -> None:
    target, rows = packed_target(tmp_path), packed()
    states = target.states(rows)
    for number, conversation in enumerate(CONVERSATIONS):
        alone = target.loaded.model(torch.tensor([conversation.token_ids]), output_hidden_states=True)
        own = rows.documents == number
        torch.testing.assert_close(states.inputs[1][own], alone.hidden_states[1][0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(states.log_mass[own], alone.logits[0].logsumexp(-1), atol=1e-4, rtol=1e-4)
        assert torch.equal(states.choices[own], alone.logits[0].argmax(-1))


def test_drafts_learned_together_are_those_of_one_pass_over_the_text_and_the_slots(tmp_path: Path) -> None:
    target, rows = packed_target(tmp_path), packed()
    head, embeddings = tiny_head(target), target.loaded.model.get_input_embeddings()
    inputs = target.states(rows).inputs
    features = torch.cat([inputs[layer] for layer in head.config.feature_layers], dim=-1)
    previous = torch.cat((features[:, :1] * 0, features[:, :-1]), dim=1)
    anchors, is_anchor = rows.anchors(24)
    assert bool(is_anchor.all())
    places = Places(rows.positions, rows.sees_states, anchors, NUM_SLOTS)
    drafts = head.draft(embeddings(rows.token_ids), embeddings.weight[MASK_TOKEN_ID], previous, places)
    for anchor, draft in zip(anchors[0].tolist(), drafts[0], strict=True):
        start = anchor - int(rows.positions[0, anchor])
        token_ids = [*rows.token_ids[0, start + 1 : anchor + 1].tolist(), *[MASK_TOKEN_ID] * NUM_SLOTS]
        states = torch.cat((previous[0, start + 1 : anchor + 1], head.mask_hidden.expand(NUM_SLOTS, -1)))
        alone = one_pass(head, embeddings(torch.tensor(token_ids)), states)
        torch.testing.assert_close(draft, alone[-NUM_SLOTS - 1 :], atol=1e-4, rtol=1e-4)


def one_pass(head: ParallelHead, embeddings: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    hidden, rotary = head.fuse(states), Rotary(head.config, torch.arange(1, len(states) + 1))
    for layer in (head.midlayer, *head.layers.values()):
        query, key, value = (part.transpose(0, 1)[None] for part in layer.project(embeddings, hidden, rotary))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        hidden = layer.finish(attended[0].transpose(0, 1).flatten(1), hidden)
    return hidden


def test_its_folder_has_the_tensors_of_an_eagle3_head_and_those_that_vllm_reads_beside_them(tmp_path: Path) -> None:
    head = tiny_head(packed_target(tmp_path))
    save_parallel_head(head, tmp_path / "head")
    tensors = read_tensors(tmp_path / "head")
    assert set(Eagle3Head(head.config).state_dict()) < set(tensors)
    assert tensors["mask_hidden"].shape == (1, 3 * 32)
    assert {name.split(".")[1] for name in tensors if name.startswith("layers.")} == {"1", "2"}
