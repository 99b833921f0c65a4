"""Draw docs/images/trace.svg: where the time of one real request went, from its spans.

Starts the services with the default model and its head in the draft service, asks once to warm up and once to look.
Needs the default model (`pilotfish models pull`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import grpc

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pilotfish.config import load_config  # noqa: E402
from pilotfish.launch.local_stack import LocalStack  # noqa: E402
from pilotfish.rpc.v1 import inference_pb2 as pb  # noqa: E402
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402
from tests.support.otlp_collector import OtlpCollector, ReceivedSpan  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "trace.svg"
PROMPT = "Name three fish of the sea."
SETTINGS = (
    "draft.proposer=eagle3",
    "draft.head=smollm2-135m-instruct-eagle3",
    "target.drafter.proposer=none",
    "target.drafter.lookup=none",
    "orchestrator.speculation.draft_ahead=off",
    "telemetry.max_round_spans=1000",
)
EXPORT_S = 6.0
"""Until every batch of spans has left."""

LANES = {
    "request": ("queue",),
    "draft service": ("propose",),
    "on the way": ("network",),
    "target": ("decode", "prefill", "verify"),
}
"""Names of spans by the place where their time passes; later ones lie over earlier ones."""
COLOURS = {
    "queue": "#9aa5b1",
    "prefill": "#52606d",
    "decode": "#7b8794",
    "propose": "#2f80ed",
    "network": "#f2b134",
    "verify": "#219653",
}
WIDTH, LEFT, LANE_HEIGHT, TOP = 960, 120, 44, 64


def main() -> None:
    """See the module."""
    spans = asyncio.run(record())
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(spans), encoding="utf-8")


async def record() -> list[ReceivedSpan]:
    """The spans of the second of two requests."""
    async with OtlpCollector() as collector:
        config = load_config(None, [*SETTINGS, f"telemetry.otlp_endpoint={collector.endpoint}"])
        stack = LocalStack(config)
        await asyncio.to_thread(stack.__enter__)
        try:
            async with grpc.aio.insecure_channel(stack.address) as channel:
                stub = pb_grpc.InferenceStub(channel)
                for _ in range(2):
                    async for _response in stub.Generate(_request()):
                        pass
            await asyncio.sleep(EXPORT_S)
        finally:
            await asyncio.to_thread(stack.__exit__, None, None, None)
        last = max((span for span in collector.spans if not span.parent_id), key=lambda span: span.start_ns)
        return [span for span in collector.spans if span.trace_id == last.trace_id]


def _request() -> pb.GenerateRequest:
    options = pb.SpeculationOptions(mode=pb.SPECULATION_MODE_ON, num_speculative_tokens=4, proposer="draft")
    chat = pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content=PROMPT)])
    return pb.GenerateRequest(chat=chat, max_tokens=32, temperature=0, speculation=options)


def picture(spans: Sequence[ReceivedSpan]) -> str:
    """The spans of a request as lanes over time."""
    root = next(span for span in spans if not span.parent_id)
    scale = (WIDTH - LEFT - 16) / root.duration_ns

    def x(time_ns: int) -> float:
        return LEFT + (time_ns - root.start_ns) * scale

    height = TOP + LANE_HEIGHT * len(LANES) + 40
    tokens = root.attributes["gen_ai.usage.output_tokens"]
    title = f"{root.name}: {tokens} tokens in {root.duration_ns / 1e6:.0f} ms"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="15">{escape(title)}</text>',
    ]
    for number, (lane, names) in enumerate(LANES.items()):
        top = TOP + number * LANE_HEIGHT
        lines.append(f'<text x="16" y="{top + 22}">{lane}</text>')
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{top + 36}" y2="{top + 36}" stroke="#d9dfe5"/>')
        placed = [span for name in names for span in spans if span.name == name]
        lines.extend(_bar(span, x(span.start_ns), x(span.end_ns), top + 6) for span in placed)
    lines.extend(_accepted(spans, x))
    lines.extend(_legend(height - 16))
    return "\n".join([*lines, "</svg>", ""])


def _bar(span: ReceivedSpan, start: float, end: float, top: float) -> str:
    label = f"{span.name}, {span.duration_ns / 1e6:.1f} ms"
    return (
        f'<rect x="{start:.1f}" y="{top}" width="{max(end - start, 1):.1f}" height="26" rx="2" '
        f'fill="{COLOURS[span.name]}"><title>{label}</title></rect>'
    )


def _accepted(spans: Iterable[ReceivedSpan], x: Callable[[int], float]) -> Iterator[str]:
    """Above each round, the tokens that it yielded."""
    for span in spans:
        if span.name == "round":
            middle = (x(span.start_ns) + x(span.end_ns)) / 2
            number = span.attributes["pilotfish.num_tokens"]
            yield f'<text x="{middle:.1f}" y="{TOP - 10}" text-anchor="middle" fill="#219653">+{number}</text>'


def _legend(y: float) -> Iterator[str]:
    left = float(LEFT)
    for name, colour in COLOURS.items():
        yield f'<rect x="{left}" y="{y - 11}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{left + 18}" y="{y}">{name}</text>'
        left += 42 + 8 * len(name)
    yield f'<text x="{left + 16}" y="{y}" fill="#219653">+n: tokens of a round</text>'


if __name__ == "__main__":
    main()
