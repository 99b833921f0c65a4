"""Requests of four kinds, no two alike: each is drawn from some ten thousand combinations, and drawn once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from learning_stream import words


@dataclass(frozen=True, slots=True)
class Kind:
    """A user of the service."""

    name: str
    system: str
    examples: Sequence[tuple[str, str]]
    """Questions and answers before each request."""
    draw: Callable[[random.Random], str]

    def prompts(self, seed: int) -> Iterator[str]:
        """What this user asks, without end in practice; the same for the same seed, and none twice."""
        dice, asked = random.Random(f"{seed}:{self.name}"), set[str]()
        while True:
            prompt = self.draw(dice)
            if prompt not in asked:
                asked.add(prompt)
                yield prompt

    def messages(self, prompt: str) -> list[dict[str, str]]:
        """Messages of a chat completion."""
        turns = [("system", self.system)]
        for question, answer in self.examples:
            turns += [("user", question), ("assistant", answer)]
        return [{"role": role, "content": content} for role, content in (*turns, ("user", prompt))]


def _chat(dice: random.Random) -> str:
    pattern, topic, reader = dice.choice(words.CHAT_PATTERNS), dice.choice(words.TOPICS), dice.choice(words.READERS)
    return pattern.format(topic=topic, reader=reader)


def _sql(dice: random.Random) -> str:
    table, listed = dice.choice(list(words.TABLES.items()))
    columns = listed.split(", ")
    columns = dice.sample(columns, dice.randint(4, len(columns)))
    schema = ", ".join(["id INTEGER PRIMARY KEY", *columns])
    numbers = [column.split()[0] for column in columns if not column.endswith(" TEXT")] or ["id"]
    texts = [column.split()[0] for column in columns if column.endswith(" TEXT")] or ["id"]
    question = dice.choice(words.SQL_QUESTIONS).format(
        table=table,
        number=dice.choice(numbers).replace("_", " "),
        text=dice.choice(texts).replace("_", " "),
        value=dice.choice(words.VALUES),
        limit=dice.randint(2, 40),
    )
    return f"Schema: CREATE TABLE {table} ({schema});\nQuestion: {question}"


def _german(dice: random.Random) -> str:
    pattern, topic, place = (
        dice.choice(words.GERMAN_PATTERNS),
        dice.choice(words.GERMAN_TOPICS),
        dice.choice(words.GERMAN_PLACES),
    )
    return pattern.format(topic=topic, place=place)


def _json(dice: random.Random) -> str:
    person = f"{dice.choice(words.FIRST_NAMES)} {dice.choice(words.LAST_NAMES)}"
    fields = {
        "name": person,
        "city": dice.choice(words.CITIES),
        "product": dice.choice(words.PRODUCTS),
        "quantity": dice.randint(1, 40),
        "price": dice.randint(300, 90000) / 100,
        "date": f"2026-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d}",
    }
    return dice.choice(words.ORDERS).format(**fields)


KINDS = (
    Kind("chat", "You are a friendly assistant who answers in a few clear sentences.", (), _chat),
    Kind("sql", words.SQL_SYSTEM, words.SQL_EXAMPLES, _sql),
    Kind("german", words.GERMAN_SYSTEM, words.GERMAN_EXAMPLES, _german),
    Kind("json", words.JSON_SYSTEM, words.JSON_EXAMPLES, _json),
)
"""Kinds in the order of the stream."""
