from orchestrator.answers.chunk_writer import ChunkBuffer
from orchestrator.answers.output import OutputChunk
from pilotfish.types import FinishReason, TokenLogprobs, TokenOrigin
from tests.support.output import output_chunk


def chunk(text: str, finish: FinishReason | None = None, stopped_by: str = "") -> OutputChunk:
    """A token for each letter: accepted, but the last of them, which is recovered."""
    origins = (TokenOrigin.ACCEPTED,) * (len(text) - 1) + (TokenOrigin.RECOVERED,)
    return output_chunk(
        text,
        finish,
        origins=origins[: len(text)],
        logprobs=tuple(TokenLogprobs(-float(ord(letter))) for letter in text),
        round_draft_tokens=(len(text),) * len(text),
        num_accepted_tokens=len(text) - 1,
        stopped_by=stopped_by,
    )


def test_what_waits_goes_out_together() -> None:
    buffer = ChunkBuffer(1)
    for text in ("ab", "cd"):
        buffer.add(chunk(text))
        assert not buffer.is_due(more_waits=True)
    buffer.add(chunk("e"))
    assert buffer.is_due(more_waits=False)
    joined = buffer.take()
    assert (joined.text, joined.token_ids) == ("abcde", tuple(map(ord, "abcde")))
    accepted, recovered = TokenOrigin.ACCEPTED, TokenOrigin.RECOVERED
    assert joined.round_draft_tokens == (2, 2, 2, 2, 1)
    assert joined.origins == (accepted, recovered, accepted, recovered, recovered)
    assert joined.logprobs == tuple(TokenLogprobs(-float(ord(letter))) for letter in "abcde")
    assert joined.num_accepted_tokens == 2


def test_only_the_first_and_the_last_chunk_may_be_short_of_the_interval() -> None:
    buffer = ChunkBuffer(3)
    sent = []
    for text, finish in (("a", None), ("b", None), ("cd", None), ("e", None), ("f", FinishReason.STOP)):
        buffer.add(chunk(text, finish, "x" if finish else ""))
        if buffer.is_due(more_waits=False):
            sent.append(buffer.take())
    assert [joined.text for joined in sent] == ["a", "bcd", "ef"]
    assert (sent[-1].finish_reason, sent[-1].stopped_by) == (FinishReason.STOP, "x")


def test_an_end_is_due_whatever_the_mailbox_holds() -> None:
    """A stop string may cut an answer whose target has gone on."""
    buffer = ChunkBuffer(1)
    buffer.add(chunk("a", FinishReason.STOP, "x"))
    assert buffer.is_due(more_waits=True)
