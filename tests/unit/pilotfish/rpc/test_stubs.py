"""The committed stubs are what scripts/generate_stubs.py makes of protos/ today."""

from pathlib import Path

from tests.support.scripts import SCRIPTS, load_script


def test_committed_stubs_are_up_to_date(tmp_path: Path) -> None:
    generator = load_script(SCRIPTS / "generate_stubs.py")
    generated = {path.name: path.read_text() for path in generator.generate(tmp_path)}
    committed = {path.name: path.read_text() for path in generator.STUBS.glob("*_pb2*.py*")}
    assert generated.keys() == committed.keys(), "run `make stubs`"
    stale = [name for name, text in generated.items() if committed[name] != text]
    assert not stale, "run `make stubs`"
