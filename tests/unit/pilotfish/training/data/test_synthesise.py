"""Self-synthesis with a real engine over a tiny target."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pilotfish.chat import ChatMessage
from pilotfish.config import EngineConfig
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import LoadedModel, load_model
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.data import samples
from pilotfish.training.data import synthesise as synthesis
from pilotfish.training.data.conversations import Conversation
from pilotfish.training.data.extract import FeatureExtractor
from pilotfish.training.data.prompts import Prompt
from pilotfish.training.data.recorder import FeatureRecorder, SummingDecoder, build_recorded_core
from pilotfish.training.data.samples import Sample, SampleStore
from pilotfish.training.data.synthesise import SynthesisConfig, Synthesiser
from pilotfish.training.data.user_turn import user_turn_prefix
from pilotfish.types import ModelInfo
from tests.unit.pilotfish.training.conftest import KilledError

END = 1
LAYERS = (1, 2, 3)
CONFIG = SynthesisConfig(
    num_answer_tokens=80,
    num_sequences=6,
    max_question_tokens=24,
    max_answer_tokens=20,
    max_prompt_tokens=400,
    max_document_tokens=100,
)


def target(target_folder: Path) -> tuple[LoadedModel, Decoder]:
    loaded = load_model(str(target_folder), cache_dir=target_folder)
    return loaded, TransformersDecoder(loaded.model, deterministic=False, max_context_tokens=512)


def engine(target_folder: Path) -> tuple[EngineCore, FeatureRecorder]:
    return build_recorded_core(*target(target_folder), LAYERS, num_sequences=8)


def synthesise(
    target_folder: Path, tokenizer: Tokenizer, folder: Path, config: SynthesisConfig, prompts: Sequence[Prompt] = ()
) -> list[Sample]:
    Synthesiser(*engine(target_folder), tokenizer, config, prompts).run(SampleStore(folder))
    return list(SampleStore(folder).read())


def tokens(samples: Sequence[Sample]) -> list[list[int]]:
    return [sample.token_ids.tolist() for sample in samples]


def test_conversations_are_prompts_with_answers(target_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = synthesise(target_folder, tokenizer, tmp_path / "shards", CONFIG)
    assert sum(line.num_answer_tokens for line in lines) >= CONFIG.num_answer_tokens
    prompts = []
    for line in lines:
        prompt = tokenizer.decode(line.prompt, skip_special=False)
        assert prompt.startswith("<|im_start|>user\n")
        assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
        prompts.append(prompt)
        answer = line.token_ids[line.prompt_len :].tolist()
        assert CONFIG.min_answer_tokens <= len(answer) <= CONFIG.max_answer_tokens
        assert END not in answer[:-1]
        assert answer[-1] == END or len(answer) == CONFIG.max_answer_tokens
    assert len(set(prompts)) == len(prompts)
    tasks = [prompt for prompt in prompts if any(letter.isupper() for letter in prompt)]
    assert 0 < len(tasks) < len(prompts)  # the target itself says no capital letter


def test_what_the_engine_computed_is_what_extraction_would_compute(
    target_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Of prompts in chunks, from the prefix cache and after a preemption, and of answers however they end."""
    decoder = SummingDecoder(target(target_folder)[1])
    recorder = FeatureRecorder(decoder, LAYERS)
    few_blocks = EngineConfig(kv_cache_tokens=640, max_sequences=8, max_batch_tokens=64)
    info = ModelInfo(model_id="tiny", tokenizer_fingerprint="", vocab_size=258, max_context_tokens=512)
    core = EngineCore(decoder, few_blocks, info, features=recorder)
    config = replace(CONFIG, num_answer_tokens=250, max_answer_tokens=60, answers_per_prompt=4)
    prompts = [prompt(tokenizer, f"Number {index}: {'abc ' * (30 + index)}") for index in range(12)]
    Synthesiser(core, recorder, tokenizer, config, prompts).run(SampleStore(tmp_path))
    assert core.num_preemptions > 0
    recorded = list(SampleStore(tmp_path).read())
    answers = [Conversation(sample.prompt_len, sample.token_ids.tolist()) for sample in recorded]
    extracted = list(FeatureExtractor(target(target_folder)[1], LAYERS, 512).extract(answers))
    for one, other in zip(recorded, extracted, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        for name in ("features", "answer_hidden", "log_mass"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=0.1, rtol=0.05)
    same = torch.cat([one.choices == other.choices for one, other in zip(recorded, extracted, strict=True)])
    assert same.float().mean() > 0.99  # bfloat16 may tie two tokens
    ends = {sample.token_ids[-1].item() == END for sample in recorded}
    assert ends == {True, False}


def test_given_prompts_are_answered_first(target_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    prompts = [prompt(tokenizer, f"Number {index} {'x' * 80 * index}") for index in range(7)]
    notes: list[str] = []
    config = replace(CONFIG, num_answer_tokens=120)
    store = SampleStore(tmp_path)
    Synthesiser(*engine(target_folder), tokenizer, config, prompts).run(store, lambda _, note: notes.append(note))
    given = {one.token_ids for one in prompts}
    assert store.answered == Counter(range(5))  # the others are too long
    order = [sample.prompt in given for sample in store.read()]
    assert set(order[:3]) == {True}
    assert set(order[-3:]) == {False}  # the target's own
    assert notes[-1] == "5 of 5 answers to prompts begun, 2 prompts are too long"


def prompt(tokenizer: Tokenizer, text: str) -> Prompt:
    return Prompt(text, tuple(tokenizer.apply_chat_template([ChatMessage("user", text)])))


def test_the_seed_decides(target_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = replace(CONFIG, num_answer_tokens=20)
    first, second, other = (
        tokens(synthesise(target_folder, tokenizer, tmp_path / name, replace(config, seed=seed)))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first == second
    assert other[0] != first[0]


def test_a_killed_run_goes_on_without_repeating_itself(
    target_folder: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it writes its second shard: those before are kept, prompts that they answer are not asked again."""
    monkeypatch.setattr(synthesis, "SHARD_TOKENS", 70)
    prompts = [prompt(tokenizer, f"Number {index}") for index in range(4)]
    config = replace(CONFIG, answers_per_prompt=2, num_answer_tokens=140)
    written = 0

    def save(columns: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        nonlocal written
        if written == 1:
            path.write_bytes(b"torn")
            raise KilledError
        written += 1
        save_file(columns, path, metadata)

    with monkeypatch.context() as patched:
        patched.setattr(samples, "save_file", save)
        with pytest.raises(KilledError):
            Synthesiser(*engine(target_folder), tokenizer, config, prompts).run(SampleStore(tmp_path))
    store = SampleStore(tmp_path)
    before, answered = tokens(list(store.read())), store.answered
    assert before
    assert 0 < answered.total() < 8
    finished = synthesise(target_folder, tokenizer, tmp_path, config, prompts)
    assert tokens(finished)[: len(before)] == before
    assert SampleStore(tmp_path).answered == Counter(dict.fromkeys(range(4), 2))
    asked = Counter(sample.prompt for sample in finished)
    assert max(asked[one.token_ids] for one in prompts) <= 2
    assert sum(sample.num_answer_tokens for sample in finished) >= config.num_answer_tokens
    # Enough is there: nothing is added.
    assert tokens(synthesise(target_folder, tokenizer, tmp_path, config, prompts)) == tokens(finished)


def test_a_target_that_writes_nothing_useful_is_given_up(
    target_folder: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis, "_MAX_USELESS_TURNS", 10)
    short = replace(CONFIG, max_question_tokens=2)
    with pytest.raises(UnsupportedModelError, match="10 turns in a row"):
        synthesise(target_folder, tokenizer, tmp_path / "shards", short)


def test_a_template_that_begins_with_the_user_has_no_turn_to_begin(target_folder: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((target_folder / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages[0].content }}"}')
    with pytest.raises(UnsupportedModelError, match="give --data"):
        user_turn_prefix(Tokenizer.load(tmp_path), ())
