"""Which chat template an orchestrator takes."""

from pathlib import Path

from orchestrator.replicas.dialing import find_tokenizer
from orchestrator.replicas.directory import ReplicaDirectory
from pilotfish.config import Config, config_from_dict
from pilotfish.rpc.link_security import OPEN_LINKS
from tests.support.byte_tokenizer import save_lookup_folder


async def template(config: Config) -> str:
    return (await find_tokenizer(config, ReplicaDirectory(), OPEN_LINKS)).chat_template


async def test_an_adapters_chat_template_counts_and_one_that_is_set_more(tmp_path: Path) -> None:
    save_lookup_folder(tmp_path)
    adapter, own = tmp_path / "style", tmp_path / "own.jinja"
    adapter.mkdir()
    own.write_text("set")
    target = {"model": str(tmp_path), "lora": str(adapter)}
    plain = await template(config_from_dict({"target": target}))
    (adapter / "chat_template.jinja").write_text("the adapter's")
    assert await template(config_from_dict({"target": target})) == "the adapter's" != plain
    values = {"target": target, "orchestrator": {"chat_template": str(own)}}
    assert await template(config_from_dict(values)) == "set"
