"""The committed stubs are what scripts/generate_stubs.py makes of protos/ today."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_stubs", REPOSITORY / "scripts" / "generate_stubs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_stubs_are_up_to_date(generator: ModuleType, tmp_path: Path) -> None:
    generated = {path.name: path.read_text() for path in generator.generate(tmp_path)}
    committed = {path.name: path.read_text() for path in generator.STUBS.glob("*_pb2*.py*")}
    assert generated.keys() == committed.keys(), "run `make stubs`"
    stale = [name for name, text in generated.items() if committed[name] != text]
    assert not stale, "run `make stubs`"
