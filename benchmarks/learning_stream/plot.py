"""A plot of tokens a round by minute, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 320, 48, 40, 24
COLOURS = ("#888888", "#1f77b4")


def svg(minutes: Sequence[tuple[str, float, float]], swaps: Sequence[float]) -> str:
    """minutes: the kind that was asked, and the lengths without and with learning. swaps: when a version came, in
    minutes."""
    top = max([2.0, *(max(off, on) for _, off, on in minutes)]) * 1.1
    count = max(1, len(minutes))

    def x(minute: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * minute / count

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
    for index, (kind, _, _) in enumerate(minutes):
        if index == 0 or minutes[index - 1][0] != kind:
            parts.append(f'<path d="M{x(index):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#bbbbbb"/>')
            parts.append(f'<text x="{x(index) + 4:.1f}" y="{TOP - 8}">{kind}</text>')
    for arm, colour in enumerate(COLOURS):
        points = " ".join(
            f"{x(at + 0.5):.1f},{y(each[1 + arm]):.1f}" for at, each in enumerate(minutes) if each[1 + arm]
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for arm, name in enumerate(("static head", "learning")):
        parts.append(f'<text x="{LEFT + 130 * arm}" y="{HEIGHT - 8}" fill="{COLOURS[arm]}">{name}</text>')
    parts.append(f'<text x="{LEFT + 260}" y="{HEIGHT - 8}" fill="#2ca02c">a version begins to serve</text>')
    parts.append(f'<text x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end">tokens a round by minute</text>')
    return "\n".join([*parts, "</svg>", ""])
