"""Small targets with vocabularies of their own, which have learned another model's answers by heart.

So whatever a drafter that is that model loses is lost to the vocabulary, and not to what the two models know.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.bench.prompts import Prompt
from pilotfish.chat import ChatMessage
from pilotfish.config import Config
from pilotfish.engine.process.factory import build_engine
from pilotfish.examine.rehearsal import Question, answer_all
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import SamplingParams
from vocabularies.kinds import END, Kind, tokenizer_of

_CONTEXT_TOKENS = 4096
_HIDDEN, _LAYERS, _BATCH = 128, 3, 8
_GOOD_LOSS, _LIMIT_S = 0.02, 120.0


def answers_of(config: Config, prompts: Sequence[Prompt], max_tokens: int) -> list[tuple[str, str]]:
    """The prompts as config's target reads them, each with its greedy answer."""
    core = build_engine(config, "target")
    tokenizer = Tokenizer.load(core.model.tokenizer_path)
    sampling = SamplingParams(temperature=0, stop_token_ids=tuple(sorted(tokenizer.eos_token_ids)))
    texts = [tokenizer.apply_chat_template((ChatMessage("user", prompt.text),)) for prompt in prompts]
    questions = [Question(prompt.category, tuple(text), sampling) for prompt, text in zip(prompts, texts, strict=True)]
    answers = answer_all(core, questions, max_tokens, 0)
    return [
        (tokenizer.decode(text, skip_special=False), tokenizer.decode(list(answer.token_ids)))
        for text, answer in zip(texts, answers, strict=True)
    ]


def make_target(kind: Kind, folder: Path, texts: Sequence[tuple[str, str]], max_tokens: int, template: Path) -> float:
    """A model folder; the loss at the end. texts: prompts as they are read, with their answers. max_tokens: of its own
    that it learns of each answer, which is all that it is asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer_of(kind)
    made.save(str(folder / "tokenizer.json"))
    end = made.token_to_id(END)
    settings = {"bos_token": None, "eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    shutil.copy(template, folder / "chat_template.jinja")
    learned = [_rows(made, prompt, answer, max_tokens, end) for prompt, answer in texts]
    config = LlamaConfig(
        vocab_size=made.get_vocab_size(),
        hidden_size=_HIDDEN,
        intermediate_size=2 * _HIDDEN,
        num_hidden_layers=_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=_CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
    )
    model, loss = _trained(config, learned)
    config.architectures, config.dtype = ["LlamaForCausalLM"], "bfloat16"
    config.save_pretrained(folder)
    save_file(model, folder / "model.safetensors", {"format": "pt"})
    return loss


def _rows(made: tokenizers.Tokenizer, prompt: str, answer: str, max_tokens: int, end: int) -> tuple[list[int], int]:
    """Token ids, and how many of them are the prompt's."""
    begun = made.encode(prompt).ids
    whole = made.encode(prompt + answer).ids
    added = whole[len(begun) :] if whole[: len(begun)] == begun else made.encode(answer).ids
    return [*begun, *added[:max_tokens], *([end] if len(added) <= max_tokens else [])], len(begun)


def _trained(config: LlamaConfig, texts: Sequence[tuple[list[int], int]]) -> tuple[dict[str, Tensor], float]:
    """Weights in bfloat16 and the loss. Tokens that no text has keep an embedding of zeros: their logits are 0, and
    training counts them without computing them."""
    used = sorted({token_id for token_ids, _ in texts for token_id in token_ids})
    place_of = {token_id: place for place, token_id in enumerate(used)}
    num_others = config.vocab_size - len(used)
    torch.manual_seed(0)
    small = LlamaForCausalLM(LlamaConfig(**{**config.to_dict(), "vocab_size": len(used)}))
    optimizer = torch.optim.AdamW(small.parameters(), lr=3e-3, weight_decay=0.0)
    loss, start_s = math.inf, time.monotonic()
    for step in itertools.count():
        if loss < _GOOD_LOSS or time.monotonic() - start_s > _LIMIT_S:
            break
        chosen = [texts[index] for index in torch.randperm(len(texts))[:_BATCH].tolist()]
        length = max(len(token_ids) for token_ids, _ in chosen)
        ids, labels = torch.zeros(len(chosen), length, dtype=torch.int64), torch.full((len(chosen), length), -100)
        for row, (token_ids, prompt_len) in enumerate(chosen):
            ids[row, : len(token_ids)] = torch.tensor([place_of[each] for each in token_ids])
            labels[row, prompt_len - 1 : len(token_ids) - 1] = ids[row, prompt_len : len(token_ids)]
        wanted = labels >= 0
        hidden = small.model(ids).last_hidden_state[wanted]
        logits = small.lm_head(hidden)
        others = logits.new_full((len(logits), 1), math.log(num_others) if num_others else -torch.inf)
        value = functional.cross_entropy(torch.cat((logits, others), 1), labels[wanted])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 20)
        loss = value.item() if math.isinf(loss) else 0.9 * loss + 0.1 * value.item()
    weights = {name: weight.detach().bfloat16() for name, weight in small.state_dict().items() if "lm_head" not in name}
    table = torch.zeros(config.vocab_size, _HIDDEN, dtype=torch.bfloat16)
    table[used] = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = table
    return {name: weight.contiguous() for name, weight in weights.items()}, loss
