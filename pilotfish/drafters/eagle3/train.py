"""Training an EAGLE-3 head (2503.01840, section 3.2): it learns on its own outputs, several draft depths deep.

At depth 0 row q sees the target's feature of position q - 1. At depth d it sees the head's own output for that
position, and of the tokens before it: the keys that depth 0 wrote up to q - d, then one key of each depth up to
its own, as in a draft of d + 1 tokens.

Shapes: T tokens of the batch, A active rows (those that predict answer tokens, and the few before them that
deeper rows stand on), H hidden size, N query heads, M key/value heads, D head size, Vd draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from pilotfish.drafters.eagle3.checkpoint import load_eagle3, save_eagle3
from pilotfish.drafters.eagle3.config import Eagle3Config
from pilotfish.drafters.eagle3.module import Eagle3Head, Rotary
from pilotfish.drafters.eagle3.train_attention import attend, attend_at_once
from pilotfish.drafters.eagle3.train_batch import Batch, collate
from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.features import default_feature_layers
from pilotfish.models.loading import LoadedModel
from pilotfish.models.store.head_config import HeadTarget
from pilotfish.models.store.tensor_folder import check_tensors
from pilotfish.training.data.samples import Sample
from pilotfish.training.distillation import Teacher, output_rows, soft_cross_entropy
from pilotfish.training.request import TrainingRequest
from pilotfish.training.trainee import Trainee
from pilotfish.training.vocabulary import chosen_vocabulary, refitted_vocabulary

DEPTH_DECAY = 0.8
"""Weight of a depth relative to the one before it: a deep draft token counts only when those before it are right."""

ROOT_SHARE = 0.4
"""Share of a run, at its start, that trains depth 0 alone: a third of the cost, and most of what there is to learn."""


class Eagle3Objective:
    """The loss and the held-out acceptance of a head; see loop.Objective."""

    def __init__(
        self, head: Eagle3Head, target: PreTrainedModel, num_depths: int, *, root_share: float = ROOT_SHARE
    ) -> None:
        """target: only its embeddings and output projection are kept."""
        self.module = head
        self.num_depths = num_depths
        self.attends_at_once = head.d2t.is_cuda
        """All conversations in one kernel: on a GPU it is the number of kernels that costs."""
        self._root_share = root_share
        self._embeddings: Tensor = _weight(head.embed_tokens or target.get_input_embeddings()).detach()
        self._token_ids = head.target_token_ids
        self._teacher = Teacher(output_rows(target, self._token_ids))

    def loss(self, samples: Sequence[Sample], progress: float) -> Tensor:
        """Mean over rows and, weighted, over depths; the first root_share of a run has depth 0 only."""
        num_depths = 1 if progress < self._root_share else self.num_depths
        batch = collate(samples, num_depths)
        total = sum(DEPTH_DECAY**depth for depth in range(num_depths))
        loss = batch.log_mass.new_zeros(())
        probs = self._labels(batch)
        for depth, hidden in enumerate(self._depths(batch, num_depths)):
            rows = batch.counts[depth].nonzero().squeeze(1)
            weights = batch.log_mass.new_full((len(rows),), DEPTH_DECAY**depth / total / max(1, len(rows)))
            loss = loss + soft_cross_entropy(self.module.logits(hidden[rows]), probs[rows], weights)
        return loss

    def _labels(self, batch: Batch) -> Tensor:
        """[A, Vd]: the target's distribution over the draft vocabulary; its choice alone where no more is known."""
        if bool(batch.known.all()):
            return self._teacher.probs(batch.last_hidden, batch.log_mass)
        places = torch.searchsorted(self._token_ids, batch.choices.clamp(min=0)).clamp(max=len(self._token_ids) - 1)
        is_drafted = self._token_ids[places] == batch.choices
        probs = functional.one_hot(places, len(self._token_ids)).float() * is_drafted.unsqueeze(1)
        probs[batch.known] = self._teacher.probs(batch.last_hidden[batch.known], batch.log_mass[batch.known])
        return probs

    def agreement(self, samples: Sequence[Sample]) -> Tensor:
        """int64 [2 * depths + 1] counts: rows, then of each depth rows that equal the target's argmax, given the true
        tokens before them; then of each depth rows where it and all shallower ones of the same draft do."""
        batch = collate(samples, self.num_depths)
        single, chained = [], []
        ahead: Tensor | None = None
        for depth, hidden in enumerate(self._depths(batch, self.num_depths)):
            agrees = self._token_ids[self.module.logits(hidden).argmax(-1)] == batch.choices
            ahead = agrees if ahead is None else agrees & _shift(ahead)
            rows = batch.ends.roll(depth - self.num_depths + 1)
            single.append((agrees & rows).sum())
            chained.append((ahead & rows).sum())
        return torch.stack([batch.ends.sum(), *single, *chained])

    def _depths(self, batch: Batch, num_depths: int) -> Iterable[Tensor]:
        """The output hidden states [A, H] of each depth."""
        layer = self.module.midlayer
        embeddings = self._embeddings[batch.token_ids]
        fused = self.module.fuse(batch.previous.to(self.module.fc.weight.dtype))
        query, key, value = layer.project(embeddings, fused, Rotary(self.module.config, batch.positions))
        roots = (key, value)
        query, hidden = query[batch.active], fused[batch.active]
        active_embeddings, rotary = embeddings[batch.active], Rotary(self.module.config, batch.positions[batch.active])
        drafted: list[tuple[Tensor, Tensor]] = []
        for depth in range(num_depths):
            if depth:
                hidden = _shift(hidden)
                query, key, value = layer.project(active_embeddings, hidden, rotary)
                drafted.append((key, value))
            if self.attends_at_once:
                attended = attend_at_once(query, roots, drafted, batch.segments)
            else:
                attended = torch.cat([attend(query, roots, drafted, segment) for segment in batch.segments])
            hidden = layer.finish(attended, hidden)
            yield hidden


def _shift(rows: Tensor) -> Tensor:
    """Each row gets the one before it; the first keeps its own, which never counts."""
    return torch.cat((rows[:1], rows[:-1]))


def new_head(loaded: LoadedModel, draft_token_ids: Tensor) -> Eagle3Head:
    """A head initialised from its target: its layer from the last one, its output from the rows of the vocabulary.

    draft_token_ids: int64 [Vd]. The embedding's half of the projections starts small, the fused hidden
    state as the high feature: so the head starts as a shortened target and learns what the new token changes.
    Raises UnsupportedModelError for a target whose layers are not Llama's.
    """
    try:
        head = Eagle3Head(_config(loaded, len(draft_token_ids)))
        head.set_draft_vocabulary(draft_token_ids)
        _initialise(head, loaded.model)
    except AttributeError as error:  # sizes and weights have other names, or there are none
        raise UnsupportedModelError(
            f"an EAGLE-3 head begins as its target's last layer, and one of {type(loaded.model).__name__} has another "
            f"form ({error}): train medusa or draft"
        ) from error
    return head


def _config(loaded: LoadedModel, draft_vocab_size: int) -> Eagle3Config:
    text: Any = loaded.model.config.get_text_config()
    heads = text.num_attention_heads
    return Eagle3Config(
        hidden_size=text.hidden_size,
        intermediate_size=text.intermediate_size,
        num_attention_heads=heads,
        num_key_value_heads=text.num_key_value_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        vocab_size=loaded.vocab_size,
        draft_vocab_size=draft_vocab_size,
        rms_norm_eps=text.rms_norm_eps,
        rope_theta=float((text.rope_parameters or {}).get("rope_theta", 10000.0)),
        max_position_embeddings=loaded.max_context_tokens,
        feature_layers=default_feature_layers(text.num_hidden_layers),
        target_model=loaded.model_id,
        tokenizer_fingerprint=loaded.fingerprint,
    )


def needed_layers(request: TrainingRequest, num_layers: int) -> Sequence[int]:
    """See drafter_registry. The head's layer begins as the last one."""
    del request
    return [num_layers - 1]


def new_trainee(request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path) -> Trainee:
    """See training.trainee. Samples choose the head's vocabulary."""
    token_ids, facts = chosen_vocabulary(request, loaded, samples, run_folder)
    head = new_head(loaded, token_ids).to(loaded.model.device)
    if request.start_from is not None:
        start_from(head, request.start_from, loaded)
        facts["first weights"] = f"the head `{request.start_from.absolute().name}`"
    return Trainee(
        objective=Eagle3Objective(head, loaded.model, request.num_depths),
        save=lambda folder: save_eagle3(head, folder),
        title="eagle3",
        description="an EAGLE-3 head in the published layout (`fc`, `midlayer`, `norm`, `lm_head`, `d2t`, `t2d`)",
        facts=facts,
    )


def learner(folder: Path, loaded: LoadedModel, num_depths: int, counts: Mapping[int, float] | None = None) -> Trainee:
    """The head in a folder, to go on with. See drafter_registry.

    counts: of tokens in answers that it is to draft; those that are frequent and that it cannot propose take the place
    of those that are not. None: it stays as it is.

    Raises: what load_eagle3 does; ModelError for a head of another target.
    """
    target = HeadTarget.of_model(loaded)
    head = load_eagle3(folder, num_target_layers=target.num_layers, dtype=torch.float32)
    head.config.check_target(target, source=str(folder))
    if counts is not None:
        _set_vocabulary(head, refitted_vocabulary(head.target_token_ids, counts), loaded)
    head = head.to(loaded.model.device).requires_grad_(True)
    if head.embed_tokens is not None:
        head.embed_tokens.requires_grad_(False)
    return Trainee(
        objective=Eagle3Objective(head, loaded.model, num_depths),
        save=lambda out: save_eagle3(head, out),
        title="eagle3",
        description="an EAGLE-3 head that learned from traffic",
        facts={},
    )


@torch.no_grad()
def start_from(head: Eagle3Head, folder: Path, loaded: LoadedModel) -> None:
    """Give a new head the weights of the one in a folder, but for its vocabulary.

    Raises: what load_eagle3 does; ModelError for a head of another target or shape.
    """
    target = HeadTarget.of_model(loaded)
    old = load_eagle3(folder, num_target_layers=target.num_layers, dtype=torch.float32)
    old.config.check_target(target, source=str(folder))
    own, known = head.state_dict(), old.state_dict()
    if old.config.feature_layers != head.config.feature_layers:
        raise ModelError(f"the head in {folder} reads the target's layers {old.config.feature_layers}, not the default")
    shared = {name: known[name] for name in own if name not in ("lm_head.weight", "d2t", "t2d")}
    check_tensors({name: own[name] for name in shared}, shared, folder)
    head.load_state_dict(shared, strict=False)
    token_ids = head.target_token_ids.cpu()
    _set_vocabulary(old, token_ids, loaded)
    head.lm_head.weight.copy_(old.lm_head.weight)


@torch.no_grad()
def _set_vocabulary(head: Eagle3Head, token_ids: Tensor, loaded: LoadedModel) -> None:
    """Let a trained head propose the tokens, int64 [Vd], whatever it proposed before. Rows of new ones are the
    target's, brought among the trained rows by the linear map that fits those best: at their own scale they would
    outbid every trained one."""
    if torch.equal(token_ids, head.target_token_ids):
        return
    targets, known = _weight(loaded.model.get_output_embeddings()).float().cpu(), head.lm_head.weight
    rows = targets @ torch.linalg.lstsq(targets[head.target_token_ids], known).solution
    rows[head.target_token_ids] = known
    resized = nn.Linear(known.shape[1], len(token_ids), bias=False)
    resized.weight.copy_(rows[token_ids])
    head.lm_head = resized
    head.d2t = token_ids - torch.arange(len(token_ids))
    head.t2d = torch.zeros_like(head.t2d)
    head.t2d[token_ids] = True


@torch.no_grad()
def _initialise(head: Eagle3Head, target: PreTrainedModel) -> None:
    body: Any = target.get_decoder()
    layer, own, size = body.layers[-1], head.midlayer, head.config.hidden_size
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(own.self_attn, name).weight
        weight[:, :size].normal_(std=0.01)
        weight[:, size:] = getattr(layer.self_attn, name).weight
    own.self_attn.o_proj.weight.copy_(layer.self_attn.o_proj.weight)
    for name in ("gate_proj", "up_proj", "down_proj"):
        getattr(own.mlp, name).weight.copy_(getattr(layer.mlp, name).weight)
    own.hidden_norm.weight.copy_(layer.input_layernorm.weight)
    own.post_attention_layernorm.weight.copy_(layer.post_attention_layernorm.weight)
    head.fc.weight.normal_(std=0.005)
    head.fc.weight[:, 2 * size :] += torch.eye(size)
    head.norm.weight.copy_(body.norm.weight)
    head.lm_head.weight.copy_(output_rows(target, head.target_token_ids))


def _weight(module: Any) -> Tensor:
    weight: Tensor = module.weight
    return weight
