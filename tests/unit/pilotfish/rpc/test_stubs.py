"""The committed stubs are what scripts/generate_stubs.py makes of protos/ today, and protos/ explains itself."""

from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from tests.support.scripts import SCRIPTS, load_script

generator = load_script(SCRIPTS / "generate_stubs.py")


def test_committed_stubs_are_up_to_date(tmp_path: Path) -> None:
    generated = {path.name: path.read_text() for path in generator.generate(tmp_path)}
    committed = {path.name: path.read_text() for path in generator.STUBS.glob("*_pb2*.py*")}
    assert generated.keys() == committed.keys(), "run `make stubs`"
    stale = [name for name, text in generated.items() if committed[name] != text]
    assert not stale, "run `make stubs`"


def test_every_field_has_a_comment_its_own_or_its_types(tmp_path: Path) -> None:
    descriptors = tmp_path / "descriptors"
    sources = [str(path.relative_to(generator.PROTOS)) for path in generator.PROTOS.rglob("*.proto")]
    options = ["--include_source_info", f"--descriptor_set_out={descriptors}", f"--proto_path={generator.PROTOS}"]
    assert protoc.main(["protoc", *options, *sources]) == 0
    uncommented = []
    for file in FileDescriptorSet.FromString(descriptors.read_bytes()).file:
        # Paths of descriptor.proto: message 4 (in it field 2), enum 5.
        commented = {tuple(place.path) for place in file.source_code_info.location if place.leading_comments}
        uncommented += [enum.name for i, enum in enumerate(file.enum_type) if (5, i) not in commented]
        for i, message in enumerate(file.message_type):
            uncommented += [message.name] * ((4, i) not in commented)
            for j, field in enumerate(message.field):
                has_type = field.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_ENUM)
                if not has_type and (4, i, 2, j) not in commented:
                    uncommented.append(f"{message.name}.{field.name}")
    assert not uncommented
