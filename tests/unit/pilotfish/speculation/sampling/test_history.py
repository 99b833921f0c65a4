from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.sampling.history import CountTable, TokenHistory

TOKENS = st.lists(st.integers(0, 6), max_size=12)


def row_of(history: TokenHistory, drafts=()) -> dict[int, int]:
    table = CountTable()
    history.add_to(table, 4, drafts)
    assert list(table.rows) == [4] * len(table.token_ids)
    assert len(set(table.token_ids)) == len(table.token_ids)
    return dict(zip(table.token_ids, table.output_counts, strict=True))


def by_definition(prompt, output) -> dict[int, int]:
    counts = Counter(output)
    return {token_id: counts[token_id] for token_id in {*prompt, *output}}


@given(TOKENS, TOKENS, TOKENS)
def test_row_counts_prompt_output_and_drafts(prompt, output, drafts):
    history = TokenHistory(prompt, output)
    assert row_of(history, drafts) == by_definition(prompt, output + drafts)
    assert row_of(history) == by_definition(prompt, output)


@given(TOKENS, TOKENS, st.lists(st.tuples(st.booleans(), TOKENS, st.integers(0, 12))))
def test_any_appends_and_truncations_equal_a_fresh_history(prompt, output, steps):
    history, tokens = TokenHistory(prompt, output), list(output)
    for appends, token_ids, length in steps:
        if appends:
            history.append(token_ids)
            tokens += token_ids
        else:
            history.truncate(len(prompt) + length)
            del tokens[length:]
    assert len(history) == len(prompt) + len(tokens)
    assert row_of(history) == by_definition(prompt, tokens)
