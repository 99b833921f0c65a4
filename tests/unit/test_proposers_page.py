"""docs/proposers.md: its example works as it stands, and every lookup fulfils the same contract."""

import re
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draft_service import server
from draft_service.proposers import lookup
from draft_service.server import start_draft
from orchestrator.requests.request import PROPOSERS
from pilotfish.config import Config, DraftConfig
from pilotfish.config.target import IN_TARGET_DRAFTERS
from pilotfish.messages import OpenSequence, Proposal, Propose
from pilotfish.speculation.lookup.lookups import LOOKUPS, Lookup
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import SamplingParams, TreeRequest
from tests.support.byte_tokenizer import save_lookup_folder
from tests.support.peer import RecordingPeer
from tests.support.scripts import load_script

PAGE = Path(__file__).parents[2] / "docs" / "proposers.md"
CODE_BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
TOKENS = st.lists(st.integers(0, 3), max_size=20)


@pytest.fixture(scope="module")
def echo_lookup(tmp_path_factory: pytest.TempPathFactory) -> Lookup:
    """The page's file, imported."""
    path = tmp_path_factory.mktemp("page") / "page_echo.py"
    path.write_text(CODE_BLOCKS[0], encoding="utf-8")
    return load_script(path).echo_lookup


@pytest.fixture(params=[*sorted(LOOKUPS), "echo"], scope="module")
def any_lookup(request: pytest.FixtureRequest, echo_lookup: Lookup) -> Lookup:
    return {**LOOKUPS, "echo": echo_lookup}[request.param]


@given(kept=TOKENS, dropped=TOKENS, later=TOKENS, depth=st.integers(0, 5))
def test_every_lookup_fulfils_the_contract(
    any_lookup: Lookup, kept: list[int], dropped: list[int], later: list[int], depth: int
) -> None:
    make_index = any_lookup(DraftConfig(suffix_shared_tokens=0))
    index, fresh = make_index(""), make_index("")
    index.append(kept)
    index.append(dropped)
    index.propose(depth)
    index.truncate(len(kept))
    index.append(later)
    fresh.append(kept + later)
    assert list(index.token_ids) == kept + later
    assert len(index) == len(kept + later)
    for tree in (None, TreeRequest(max_nodes=6, branching=2)):
        draft = index.propose(depth, tree)
        assert draft == fresh.propose(depth, tree)
        assert len(draft.token_ids) == len(draft.probabilities)
        shape = DraftTree.of_message(draft.parents, len(draft.token_ids))
        assert shape.depth <= depth
        assert not draft.parents or tree is not None
        assert set(draft.token_ids) <= set(kept + later)
        assert all(0 < probability <= 1 for probability in draft.probabilities)
    with pytest.raises(ValueError, match="cannot cut"):
        index.truncate(len(index) + 1)
    index.finish(0)


async def test_the_example_is_served(echo_lookup: Lookup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_lookup_folder(tmp_path)
    monkeypatch.setattr(lookup, "LOOKUPS", {**LOOKUPS, "echo": echo_lookup})
    proposers = {**server.PROPOSERS, "echo": partial(lookup.start_lookup_proposer, name="echo")}
    monkeypatch.setattr(server, "PROPOSERS", proposers)
    replica = await start_draft(Config(draft=DraftConfig(port=0, proposer="echo", model=str(tmp_path))))
    try:
        async with RecordingPeer(replica.address, "draft") as peer:
            assert peer.stream.model.proposer == "echo"
            opened = OpenSequence(1, (7, 8, 9, 7), SamplingParams(temperature=0))
            answer = await peer.ask(opened, Propose(1, 4, (), 2))
            assert isinstance(answer, Proposal)
            assert answer.draft_token_ids == (8, 9)
    finally:
        await replica.drain_and_stop(0)


def test_the_page_names_every_proposer() -> None:
    named = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (.*?) \|", PAGE.read_text(), flags=re.MULTILINE))))
    assert {*server.PROPOSERS, *LOOKUPS, *IN_TARGET_DRAFTERS} <= named
    assert set(PROPOSERS) - {"auto", "draft"} <= named
