import grpc
import grpc.aio
import pytest

from pilotfish import errors
from pilotfish.rpc.status import PUSHBACK_KEY, RETRY_AFTER_KEY, abort, aborting_on_error, error_from_rpc


class Aborted(grpc.aio.AbortError):
    pass


class FakeContext:
    """Keeps what the call was ended with."""

    def trailing_metadata(self) -> tuple:
        return (("x-request-id", "r"),)

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: tuple) -> None:
        self.code, self.details, self.metadata = code, details, trailing_metadata
        raise Aborted


def rpc_error(code: grpc.StatusCode, details: str = "", metadata: tuple = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details)


ALL_KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.PilotfishError) and kind is not errors.PilotfishError
]


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.__name__)
async def test_every_error_survives_the_wire(kind: type[errors.PilotfishError]) -> None:
    context = FakeContext()
    with pytest.raises(grpc.aio.AbortError):
        await abort(context, kind("what happened"))
    assert context.code.name == errors.status_of(kind(""))[0]
    received = error_from_rpc(rpc_error(context.code, context.details, context.metadata), "replica x")
    assert type(received) is kind
    assert str(received) == "replica x: what happened"


async def test_faults_of_our_own_tell_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    context = FakeContext()
    with pytest.raises(grpc.aio.AbortError):
        async with aborting_on_error(context):
            raise ZeroDivisionError("/secret/path")
    assert context.code is grpc.StatusCode.INTERNAL
    assert "secret" not in context.details
    assert "Traceback" not in context.details
    assert "/secret/path" in caplog.text


async def test_a_client_that_leaves_just_before_it_is_told_is_no_fault_of_our_own(caplog) -> None:
    class LeftContext(FakeContext):
        async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: tuple) -> None:
            raise grpc.aio.InternalError("the status cannot be sent")

    with pytest.raises(grpc.aio.InternalError):
        async with aborting_on_error(LeftContext()), aborting_on_error(LeftContext()):
            raise errors.DeadlineExceededError("too late")
    assert not caplog.records


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.HandshakeError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceededError),
        (grpc.StatusCode.UNKNOWN, errors.InternalError),
    ],
)
def test_statuses_of_other_servers(code: grpc.StatusCode, kind: type[errors.PilotfishError]) -> None:
    assert type(error_from_rpc(rpc_error(code, "details"))) is kind


async def test_a_hint_when_to_try_again_survives_the_wire() -> None:
    context, refusal = FakeContext(), errors.ResourceExhaustedError("the queue is full")
    refusal.retry_after_s = 1.2345
    with pytest.raises(grpc.aio.AbortError):
        await abort(context, refusal)
    assert dict(context.metadata)[RETRY_AFTER_KEY] == dict(context.metadata)[PUSHBACK_KEY] == "1235"
    received = error_from_rpc(rpc_error(context.code, context.details, context.metadata))
    assert isinstance(received, errors.ResourceExhaustedError)
    assert received.retry_after_s == 1.235
