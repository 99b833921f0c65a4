"""docs/write-a-drafter.md: its example works as it stands, and every lookup fulfils the same contract."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.config import DraftConfig
from pilotfish.drafter_registry import DRAFTERS, LOOKUPS, Needs, room
from pilotfish.speculation.lookup.index import Lookup, lookup_of
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import TreeRequest
from tests.support.byte_tokenizer import save_lookup_folder
from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "write-a-drafter.md"
CODE_BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
FIRST_ROW = '        "ngram": '
GUESS = """
def build_in_target(wanted, loaded, decoder, *, top_m):
    return wanted.model and ("guess", loaded, decoder, top_m)
"""
GUESS_ROW = """
        "guess": DrafterKind(
            needs=Needs.FEATURES,
            runs_in=(Location.TARGET, Location.DRAFT_SERVICE),
            gives_trees=False,
            feature_layers=default_feature_layers,
            trained_as="guess",
        ),
"""
TOKENS = st.lists(st.integers(0, 3), max_size=20)


@pytest.fixture(scope="module")
def echo_lookup(tmp_path_factory: pytest.TempPathFactory) -> Lookup:
    """The page's file, imported."""
    path = tmp_path_factory.mktemp("page") / "page_echo.py"
    path.write_text(CODE_BLOCKS[0], encoding="utf-8")
    return load_script(path).lookup


@pytest.fixture(params=[*sorted(LOOKUPS), "echo"], scope="module")
def any_lookup(request: pytest.FixtureRequest, echo_lookup: Lookup) -> Lookup:
    return echo_lookup if request.param == "echo" else lookup_of(request.param)


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


def test_a_room_and_a_row_are_all_that_a_drafter_adds(tmp_path: Path) -> None:
    for package in ("pilotfish", "orchestrator", "draft_service"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, code in (("echo", CODE_BLOCKS[0]), ("guess", GUESS)):
        (tmp_path / "pilotfish/drafters" / name).mkdir()
        (tmp_path / "pilotfish/drafters" / name / "__init__.py").touch()
        (tmp_path / "pilotfish/drafters" / name / "draft.py").write_text(code, encoding="utf-8")
    registry = tmp_path / "pilotfish/drafter_registry.py"
    rows = registry.read_text(encoding="utf-8")
    assert rows.count(FIRST_ROW) == 1
    registry.write_text(rows.replace(FIRST_ROW, CODE_BLOCKS[1] + GUESS_ROW + FIRST_ROW), encoding="utf-8")
    (tmp_path / "model").mkdir()
    save_lookup_folder(tmp_path / "model")
    result = subprocess.run(
        [sys.executable, "-m", "tests.support.new_rooms", str(tmp_path / "model")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stdout == "known everywhere\n", result.stderr


def test_lookups_need_no_torch() -> None:
    imports = "; ".join(f"room({name!r}, 'draft')" for name in LOOKUPS)
    code = f"import sys; from pilotfish.drafter_registry import room; {imports}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_the_page_of_proposers_says_where_every_drafter_runs() -> None:
    page = (PAGE.parent / "proposers.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", page, flags=re.MULTILINE)
    places = {name: {place.name.lower().replace("_", " ") for place in kind.runs_in} for name, kind in DRAFTERS.items()}
    assert {name: set(told.split(", ")) for name, told in rows} == places


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_room_holds_what_its_row_promises(name: str) -> None:
    kind = DRAFTERS[name]
    promised = {
        Needs.TEXT: ("lookup",),
        Needs.FEATURES: ("build_in_target", "build_standalone"),
        Needs.LAYERS: ("build_in_target",),
        Needs.MODEL: (),
        Needs.GRAMMAR: ("GrammarDrafter",),
    }[kind.needs]
    assert all(callable(getattr(room(name, "draft"), function)) for function in promised)
    assert (kind.feature_layers is not None) == (kind.needs is Needs.FEATURES)
    assert not kind.trained_as or callable(room(name, "train").new_trainee)
