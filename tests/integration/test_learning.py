"""A drafter that learns, through real services: what is kept of requests, and versions that are taken up under load."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotfish.config import Config, config_from_dict
from pilotfish.config.shipped_heads import head_folder as shipped_folder
from pilotfish.engine.process.factory import build_engine
from pilotfish.learning.versions import Versions
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.security.api_key import ApiKey, digest_of
from pilotfish.security.api_key_file import write_keys
from tests.support.learning import add_version, texts_in
from tests.support.stack import Answer, Stack, running_stack
from tests.support.threaded_engine import ThreadedEngine
from tests.support.until import until

PROMPT = "The pilot fish swims ahead; the big one decides."
PLACES = {"target": "eagle3", "draft service": "draft"}
"""The request's proposer by where the head is."""
Start = Callable[..., AbstractAsyncContextManager[Stack]]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "learning"


@pytest.fixture
def start(target_folder: Path, head_folder: Path, tmp_path: Path, folder: Path, place: str) -> Start:
    """Services with the head in one of the places."""

    @contextlib.asynccontextmanager
    async def run(**sections: Any) -> AsyncIterator[Stack]:
        config = _config(target_folder, head_folder, tmp_path, folder, place, **sections)
        engines = {"target_engine": ThreadedEngine(build_engine(config, "target"))}
        if place == "draft service":
            engines["draft_engine"] = ThreadedEngine(build_engine(config, "draft"))
        async with running_stack(config, with_draft=place == "draft service", **engines) as stack:
            yield stack

    return run


def _config(target: Path, head: Path, tmp_path: Path, folder: Path, place: str, **sections: Any) -> Config:
    service = {"model": str(target), "engine": {"compile": False, "num_threads": 1, "kv_cache_tokens": 4096}}
    learning = {"enabled": True, "folder": str(folder), **sections.pop("learning", {})}
    in_target = place == "target"
    placed = {"drafter": {"proposer": "eagle3", "model": str(head)}} if in_target else {"feature_layers": [0, 1, 1]}
    drafting = {} if in_target else {"proposer": "eagle3", "head": str(head)}
    return config_from_dict(
        {
            "target": {**service, **placed},
            "draft": {**service, **drafting, "learning": learning},
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "decode_run_tokens": 4}},
            "cache_dir": str(tmp_path),
            **sections,
        }
    )


def _named(request_id: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": (("x-request-id", request_id), *metadata.items())}


def _drafted(place: str, **options: Any) -> dict[str, Any]:
    speculation = {"mode": pb.SPECULATION_MODE_ON, "num_speculative_tokens": 4, "proposer": PLACES[place]}
    return {"max_tokens": 60, "temperature": 0.9, "seed": 11, "speculation": {**speculation, **options}}


async def test_the_ring_holds_the_text_of_requests_that_allow_it(start: Start, folder: Path, place: str) -> None:
    async with start() as stack:
        answer = await stack.ask(PROMPT, **_named("mine"), **_drafted(place))
        await until(lambda: bool(texts_in(folder)))
        prompt = stack.orchestrator.service.tokenizer.encode(PROMPT)
    (text,) = texts_in(folder)
    assert text.request_id == "mine"
    # The last token is not computed; the draft service hears of no more than it drafts from.
    whole = [*prompt, *answer.token_ids]
    assert len(text.token_ids) > 30
    assert list(text.token_ids) == whole[text.features.first_position : text.features.end_position]
    assert text.features.num_tokens == len(text.token_ids)
    assert text.prompt_len == max(0, len(prompt) - text.features.first_position)


async def test_nothing_is_kept_of_what_may_not_be_learned_from(
    start: Start, folder: Path, tmp_path: Path, place: str
) -> None:
    keys = tmp_path / "keys.yaml"
    names = {"open": True, "closed": False}
    write_keys(keys, [ApiKey(name=name, sha256=digest_of(name), learn=learn) for name, learn in names.items()])
    async with start(security={"public": {"api_keys_file": str(keys)}}) as stack:

        async def ask(request_id: str, key: str = "open", options: dict[str, Any] | None = None, **fields: Any) -> None:
            named = _named(request_id, authorization=f"Bearer {key}")
            await stack.ask(PROMPT, **named, **{**_drafted(place, **(options or {})), **fields})

        await ask("refused by the request", options={"learn": False})
        await ask("refused by the key", "closed")
        await ask("salted", cache_salt="pepper")
        metadata = _named("cancelled", authorization="Bearer open")["metadata"]
        async with stack.call(PROMPT, metadata, **{**_drafted(place), "max_tokens": 200}) as call:
            async for response in call:
                if response.chunk.token_ids:
                    break
            call.cancel()
        links = [*stack.orchestrator.service.targets.links, *stack.orchestrator.service.drafts.links]
        await until(lambda: not any(link.num_sequences for link in links))
        await ask("allowed")
        await until(lambda: "allowed" in {text.request_id for text in texts_in(folder)})
    assert {text.request_id for text in texts_in(folder)} == {"allowed"}


async def test_a_target_keeps_whole_texts_without_drafts_behind_a_cached_prefix_as_well(
    start: Start, folder: Path, place: str
) -> None:
    if place != "target":
        pytest.skip("a draft service gets no features of what it does not draft for")
    async with start() as stack:
        for number in (1, 2):
            plain = {**_drafted(place), "speculation": {"mode": pb.SPECULATION_MODE_OFF}}
            answer = await stack.ask(PROMPT, **_named(f"{number}"), **plain)
            await until(partial(lambda wanted: len(texts_in(folder)) == wanted, number))
        prompt = stack.orchestrator.service.tokenizer.encode(PROMPT)
    whole = [*prompt, *answer.token_ids][:-1]
    first, second = texts_in(folder)
    assert answer.summary is not None
    assert answer.summary.usage.cached_prompt_tokens > 0, "the second prompt's beginning was not computed"
    for text in (first, second):
        assert list(text.token_ids) == whole
        assert text.prompt_len == len(prompt)
        assert (text.features.first_position, text.features.num_tokens) == (0, len(whole))
    assert second.features.data == first.features.data
    assert first.prompt == second.prompt != ""


async def test_salted_requests_are_learned_from_if_the_operator_says_so(start: Start, folder: Path, place: str) -> None:
    async with start(learning={"salted": True}) as stack:
        await stack.ask(PROMPT, **_named("salted"), **_drafted(place), cache_salt="pepper")
        await until(lambda: bool(texts_in(folder)))
    assert [text.request_id for text in texts_in(folder)] == ["salted"]


async def test_a_service_that_does_not_learn_keeps_nothing(start: Start, folder: Path, place: str) -> None:
    async with start(learning={"enabled": False}) as stack:
        await stack.ask(PROMPT, **_named("mine"), **_drafted(place))
    assert not await asyncio.to_thread(folder.exists)


async def test_a_damaged_version_is_refused_and_the_one_before_goes_on(
    start: Start, folder: Path, head_folder: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    versions = Versions(folder)
    good, damaged = (add_version(folder, head_folder, num_target_layers=2, noise=0.1) for _ in range(2))
    versions.promote(good, "better")
    async with start() as stack:
        (folder / "versions" / str(damaged) / "config.json").write_text('{"torn')
        versions.promote(damaged, "seemed better")
        await until(lambda: "is not taken" in caplog.text)
        answer = await stack.ask(PROMPT, **_drafted(place))
        assert len(answer.token_ids) == 60
        assert answer.speculation.num_draft_tokens > 0
        assert answer.speculation.drafter_version == good
        async with httpx.AsyncClient(base_url=stack.orchestrator.http_url, verify=False) as client:
            metrics, fleet = (await client.get("/metrics")).text, (await client.get("/fleet")).json()
    assert f"version {damaged} of the head is not taken, version {good} goes on" in caplog.text
    assert "pilotfish drafter rollback" in caplog.text
    assert f'drafter_version="{good}",' in metrics.split("spec_decode_version_acceptance_length{")[1]
    assert [each["drafter_version"] for each in fleet["targets" if place == "target" else "drafts"]] == [good]
    points = {each["proposer"]: each["points"] for each in fleet["drafters"]}[PLACES[place]]
    assert [point["drafter_version"] for point in points] == [good]
    assert sum(point["num_rounds"] for point in points) == answer.speculation.num_rounds


NUM_SWAPS, NUM_AT_ONCE = 4, 8


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 0.8, "seed": 5}], ids=["greedy", "coupled"])
async def test_no_text_differs_and_no_request_fails_over_swaps_of_the_default_head(
    default_model: Path, tmp_path: Path, folder: Path, place: str, sampling: dict[str, Any]
) -> None:
    in_target = place == "target"
    config = config_from_dict(
        {
            "target": {"drafter": {"proposer": "eagle3"}} if in_target else {"drafter": {"proposer": "none"}},
            "draft": {"proposer": "eagle3", "learning": {"enabled": True, "folder": str(folder)}},
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000}},
        }
    )
    versions, head = Versions(folder), shipped_folder(config.learning_head)
    numbers = [add_version(folder, head, num_target_layers=30, noise=noise) for noise in (0.0, 0.2)]
    engines = {"target_engine": ThreadedEngine(build_engine(config, "target"))}
    if not in_target:
        engines["draft_engine"] = ThreadedEngine(build_engine(config, "draft"))
    async with running_stack(config, with_draft=not in_target, **engines) as stack:
        service = stack.orchestrator.service
        (link,) = service.targets.links if in_target else service.drafts.links

        async def ask(number: int, mode: int) -> Answer:
            speculation = {"mode": mode, "num_speculative_tokens": 4, "proposer": PLACES[place]}
            options = {"max_tokens": 24, "ignore_eos": True, **sampling, "speculation": speculation}
            return await stack.ask(f"{number}. The capital of France", **options)

        expected = [(await ask(number, pb.SPECULATION_MODE_OFF)).token_ids for number in range(NUM_AT_ONCE)]
        is_over, drafted_last = False, 0

        async def keep_asking(number: int) -> None:
            nonlocal drafted_last
            while not is_over:
                answer = await ask(number, pb.SPECULATION_MODE_ON)
                assert answer.token_ids == expected[number]
                assert answer.speculation.num_draft_tokens > 0
                drafted_last = answer.speculation.drafter_version

        async with asyncio.TaskGroup() as clients:
            for number in range(NUM_AT_ONCE):
                clients.create_task(keep_asking(number))
            for swap in range(NUM_SWAPS):
                number = numbers[swap % 2]
                versions.promote(number, f"swap {swap}")
                await until(partial(lambda wanted: link.load.drafter_version == wanted, number))
                await until(partial(lambda wanted: drafted_last == wanted, number))
            is_over = True
