"""A plot of tokens a round by minute, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 320, 48, 40, 24
COLOURS = ("#888888", "#1f77b4")


class Point(NamedTuple):
    """Tokens a round of one kind of requests in a minute."""

    at: float
    """Time in minutes."""
    kind: str
    off: float
    on: float


def svg(points: Sequence[Point], swaps: Sequence[float], minutes: float) -> str:
    """swaps: when a version came, in minutes. minutes: length of the stream."""
    top = max([2.0, *(max(point.off, point.on) for point in points)]) * 1.1

    def x(minute: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * minute / minutes

    def y(length: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (length - 1) / (top - 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for length in range(1, int(top) + 1):
        parts.append(f'<path d="M{LEFT} {y(length):.1f}H{WIDTH - 10}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(length) + 4:.1f}" text-anchor="end">{length}</text>')
    parts += [
        f'<path d="M{x(at):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#2ca02c" stroke-dasharray="3 3"/>' for at in swaps
    ]
    for before, point in zip([None, *points], points, strict=False):
        if before is None or before.kind != point.kind:
            start = 0.0 if before is None else (before.at + point.at) / 2
            parts.append(f'<path d="M{x(start):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#bbbbbb"/>')
            parts.append(f'<text x="{x(start) + 2:.1f}" y="{TOP - 8}" font-size="10">{point.kind}</text>')
    for colour, lengths in zip(COLOURS, ([each.off for each in points], [each.on for each in points]), strict=True):
        places = " ".join(
            f"{x(point.at):.1f},{y(length):.1f}" for point, length in zip(points, lengths, strict=True) if length
        )
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for arm, name in enumerate(("static head", "learning")):
        parts.append(f'<text x="{LEFT + 130 * arm}" y="{HEIGHT - 8}" fill="{COLOURS[arm]}">{name}</text>')
    parts.append(f'<text x="{LEFT + 260}" y="{HEIGHT - 8}" fill="#2ca02c">a version begins to serve</text>')
    parts.append(f'<text x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end">tokens a round by minute</text>')
    return "\n".join([*parts, "</svg>", ""])
