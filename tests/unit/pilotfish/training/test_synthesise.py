"""Self-synthesis with a real engine over a tiny target."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pilotfish.config import Config, EngineConfig, TargetConfig
from pilotfish.engine.core import EngineCore
from pilotfish.engine.factory import build_engine
from pilotfish.errors import UnsupportedModelError
from pilotfish.messages import Command, OpenSequence
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.training import synthesise as synthesis
from pilotfish.training.conversations import Conversation, read_conversations
from pilotfish.training.synthesise import SynthesisConfig, Synthesiser, clean_question, user_turn_prefix
from pilotfish.training.task_prompts import OPENINGS, wrap_in_task

END = 1
CONFIG = SynthesisConfig(
    num_answer_tokens=200,
    num_sequences=6,
    max_question_tokens=60,
    max_answer_tokens=20,
    max_prompt_tokens=400,
    max_document_tokens=100,
)


@pytest.fixture
def tokenizer(target_folder: Path) -> Tokenizer:
    return Tokenizer.load(target_folder)


def engine(target_folder: Path, cache_dir: Path) -> EngineCore:
    engine = EngineConfig(kv_cache_tokens=4096, max_sequences=8, deterministic=False, num_threads=1)
    return build_engine(
        Config(target=TargetConfig(model=str(target_folder), engine=engine), cache_dir=str(cache_dir)), "target"
    )


def synthesise(target_folder: Path, tokenizer: Tokenizer, path: Path, config: SynthesisConfig) -> list[Conversation]:
    Synthesiser(engine(target_folder, path.parent), tokenizer, config).run(path)
    return list(read_conversations(path, tokenizer.vocab_size))


def test_conversations_are_prompts_with_answers(target_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = synthesise(target_folder, tokenizer, tmp_path / "data.jsonl", CONFIG)
    assert sum(line.num_answer_tokens for line in lines) >= CONFIG.num_answer_tokens
    prompts = []
    for line in lines:
        prompt = tokenizer.decode(line.token_ids[: line.prompt_len], skip_special=False)
        assert prompt.startswith("<|im_start|>user\n")
        assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
        prompts.append(prompt)
        answer = line.token_ids[line.prompt_len :]
        assert CONFIG.min_answer_tokens <= len(answer) <= CONFIG.max_answer_tokens
        assert END not in answer[:-1]
        assert answer[-1] == END or len(answer) == CONFIG.max_answer_tokens
    assert len(set(prompts)) == len(prompts)
    tasks = [prompt for prompt in prompts if any(letter.isupper() for letter in prompt)]
    assert 0 < len(tasks) < len(prompts)  # the target itself says no capital letter


def test_users_ask_on(
    target_folder: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = engine(target_folder, tmp_path)
    prompts: list[str] = []

    def submit(command: Command) -> None:
        if isinstance(command, OpenSequence):
            prompts.append(tokenizer.decode(command.prompt_token_ids, skip_special=False))
        EngineCore.submit(core, command)

    monkeypatch.setattr(core, "submit", submit)
    config = replace(CONFIG, num_answer_tokens=400, max_answer_tokens=60, follow_up_share=1.0)
    Synthesiser(core, tokenizer, config).run(tmp_path / "data.jsonl")
    next_turn = re.compile(
        r"<\|im_start\|>user\n.+<\|im_end\|>\n<\|im_start\|>assistant\n.+<\|im_end\|>\n<\|im_start\|>user\n", re.DOTALL
    )
    assert any(next_turn.fullmatch(prompt) for prompt in prompts)
    assert any(prompt in OPENINGS for prompt in prompts)


def test_the_seed_decides(target_folder: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    first, second = (synthesise(target_folder, tokenizer, tmp_path / name, CONFIG) for name in ("a", "b"))
    assert first == second
    other = SynthesisConfig(
        num_answer_tokens=100, max_question_tokens=40, max_answer_tokens=20, seed=1, num_sequences=6
    )
    assert synthesise(target_folder, tokenizer, tmp_path / "c", other)[0] != first[0]


def test_a_killed_run_goes_on_without_repeating_itself(
    target_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "data.jsonl"

    class KilledError(Exception):
        pass

    def kill(num_tokens: int) -> None:
        if num_tokens > 100:
            raise KilledError

    with pytest.raises(KilledError):
        Synthesiser(engine(target_folder, tmp_path), tokenizer, CONFIG).run(path, kill)
    before = list(read_conversations(path, tokenizer.vocab_size))
    path.write_bytes(path.read_bytes() + b'{"prompt_len": 3, "tok')
    lines = synthesise(target_folder, tokenizer, path, CONFIG)
    assert lines[: len(before)] == before
    assert sum(line.num_answer_tokens for line in lines) >= CONFIG.num_answer_tokens
    assert len({tuple(line.token_ids) for line in lines}) == len(lines)
    # Enough is there: nothing is added.
    assert synthesise(target_folder, tokenizer, path, CONFIG) == lines


def test_a_target_that_writes_nothing_useful_is_given_up(
    target_folder: Path, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis, "_MAX_USELESS_TURNS", 10)
    short = replace(CONFIG, max_question_tokens=2)
    with pytest.raises(UnsupportedModelError, match="10 turns in a row"):
        synthesise(target_folder, tokenizer, tmp_path / "data.jsonl", short)


def test_a_template_that_begins_with_the_user_has_no_turn_to_begin(target_folder: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((target_folder / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages[0].content }}"}')
    with pytest.raises(UnsupportedModelError, match="give --data"):
        user_turn_prefix(Tokenizer.load(tmp_path), ())


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  What is the sky?\n\n\n\nTell me. ", "What is the sky?\n\nTell me."),
        ("", None),
        ("... ... ... ...", None),
        ("Hello there", None),
        ("a b c", None),
    ],
)
def test_questions_are_cleaned(text: str, cleaned: str | None) -> None:
    assert clean_question(text) == cleaned


def test_tasks_hold_earlier_text() -> None:
    questions = [f"question {number}?" for number in range(5)]
    passages = [f"Passage {number}. " + "More words follow. " * 40 for number in range(5)]
    tasks = {wrap_in_task(Random(seed), questions, passages, max_chars=1000) for seed in range(200)}
    assert len(tasks) > 100
    assert all("question" in task or "Passage" in task for task in tasks)
    assert all(len(task) < 1500 and "{" not in task for task in tasks)
    assert any("Question: question" in task and "[2] Passage" in task for task in tasks)
