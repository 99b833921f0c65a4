"""An answer on the terminal: text as it comes, coloured by where its tokens came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pilotfish.cli.console import shows_colours
from pilotfish.client.answer import Chunk, Summary
from pilotfish.errors import InternalError
from pilotfish.types import TokenOrigin

STYLES = {
    TokenOrigin.ACCEPTED: "green",
    TokenOrigin.BONUS: "cyan",
    TokenOrigin.RECOVERED: "yellow",
    TokenOrigin.GRAMMAR: "blue",
    TokenOrigin.PLAIN: "",
}
MEANINGS = {
    TokenOrigin.ACCEPTED: "accepted draft",
    TokenOrigin.BONUS: "bonus (all accepted)",
    TokenOrigin.RECOVERED: "recovered (draft rejected)",
    TokenOrigin.GRAMMAR: "forced by the grammar",
    TokenOrigin.PLAIN: "plain",
}
MAX_POSITIONS_SHOWN = 16

Detokenize = Callable[[tuple[int, ...]], str]


def legend() -> Text:
    """What the colours mean."""
    return Text(" · ").join(Text(MEANINGS[origin], style=style or "default") for origin, style in STYLES.items())


def segments(chunk: Chunk, detokenize: Detokenize) -> Iterator[tuple[str, TokenOrigin]]:
    """Split a chunk's text by origin.

    Its text is cut where the text of the tokens of one origin ends. Where the two do not line up (a character or a
    possible stop string is held back), the rest counts as theirs.
    """
    if not chunk.text:
        return
    if not chunk.origins:
        yield chunk.text, TokenOrigin.PLAIN
        return
    rest, start = chunk.text, 0
    *groups, (last, _) = [(origin, len(list(group))) for origin, group in groupby(chunk.origins)]
    for origin, num_tokens in groups:
        piece = detokenize(chunk.token_ids[start : start + num_tokens])
        start += num_tokens
        if not piece or not rest.startswith(piece):
            last = origin
            break
        yield piece, origin
        rest = rest[len(piece) :]
    if rest:
        yield rest, last


def render(answer: Iterable[Chunk | Summary], console: Console, detokenize: Detokenize) -> tuple[str, Summary]:
    """Print an answer as it streams; returns its text and summary."""
    parts: list[str] = []
    coloured = shows_colours(console)
    for message in answer:
        if isinstance(message, Summary):
            console.print()
            return "".join(parts), message
        parts.append(message.text)
        pieces = segments(message, detokenize) if coloured else [(message.text, TokenOrigin.PLAIN)]
        for text, origin in pieces:
            console.print(Text(text, style=STYLES[origin]), end="", soft_wrap=True)
        console.file.flush()
    raise InternalError("the answer broke off before its summary")


def statistics_table(summary: Summary) -> Table:
    """How the answer came about, for people."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    cached = f", {summary.num_cached_tokens} from the prefix cache" if summary.num_cached_tokens else ""
    by = summary.stopped_by
    stopped_by = f" (token {by})" if isinstance(by, int) else f" ({by!r})" if by else ""
    ending = summary.finish_reason.name.lower() + stopped_by
    table.add_row("tokens", f"{summary.num_output_tokens} after a prompt of {summary.num_prompt_tokens}{cached}")
    table.add_row("ended by", ending)
    table.add_row("first token", f"{summary.time_to_first_token_s * 1e3:.0f} ms")
    table.add_row("then", f"{summary.tokens_per_s:.1f} tokens/s")
    stats = summary.speculation
    if stats.num_rounds:
        shown = stats.acceptance_per_position[:MAX_POSITIONS_SHOWN]
        accepted = f"{stats.num_accepted_tokens} of {stats.num_draft_tokens} ({stats.acceptance_rate:.0%})"
        table.add_row("drafts accepted", accepted)
        if stats.num_grammar_draft_tokens:
            forced = f"{stats.num_grammar_accepted_tokens} of {stats.num_grammar_draft_tokens}"
            table.add_row("of them, forced by the grammar", forced)
        table.add_row("rounds", f"{stats.num_rounds}, {stats.mean_acceptance_length:.2f} tokens each")
        table.add_row("by position", " ".join(f"{rate:.0%}" for rate in shown))
    if stats.num_steps:
        accepted = f"{stats.num_accepted_steps} of {stats.num_steps}, {stats.num_step_tokens} tokens"
        table.add_row("steps accepted", accepted)
    if stats.num_missed_deadlines:
        table.add_row("late drafts", str(stats.num_missed_deadlines))
    table.add_row("plain tokens", str(stats.num_plain_tokens))
    if stats.reason:
        table.add_row("speculation", stats.reason)
    table.add_row("seed", str(summary.seed))
    table.add_row("model", summary.model_id + (" (emulated hardware)" if summary.emulated else ""))
    return table
