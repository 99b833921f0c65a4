"""The prompts of the benchmarks: Spec-Bench's jsonl where --dataset names it, else a small set of our own.

The own set covers Spec-Bench's categories; texts are ours.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_PASSAGE = (
    "The harbour of Larvik was built in 1820. Its first lighthouse stood on the southern mole and burned whale oil. "
    "In 1871 a storm took the lighthouse and forty metres of the mole. The town rebuilt both within two years, this "
    "time in granite. The new lighthouse burned paraffin until 1934, when it was connected to the power station. "
    "Today it is a museum, open from May to September, and visited by nine thousand people a year."
)
_OWN: dict[str, list[str]] = {
    "writing": [
        "Write a short letter to a neighbour, thanking her for looking after the garden.",
        "Describe a quiet morning in a fishing village.",
    ],
    "roleplay": ["You are a lighthouse keeper. Tell a visitor what your day is like."],
    "reasoning": ["Anna is taller than Ben, and Ben is taller than Carl. Who is the shortest? Explain."],
    "math": ["A train travels 120 km in 2 hours and 180 km in the next 3 hours. What is its average speed?"],
    "coding": [
        "Write a Python function that returns the sum of the even numbers in a list.",
        "Rename the variable x to total in this code and print it again:\n"
        "def f(items):\n    x = 0\n    for item in items:\n        x = x + item\n    return x",
    ],
    "extraction": [f"List the years and what happened in each.\n\n{_PASSAGE}"],
    "stem": ["Why is the sky blue?"],
    "humanities": ["What did the printing press change in Europe?"],
    "translation": ["Translate into French: The house by the sea is empty in winter."],
    "summarization": [f"Summarize this text in two sentences.\n\n{_PASSAGE}"],
    "qa": ["Which planet has the most moons?"],
    "math_reasoning": ["Tom has 5 boxes with 12 pencils each and gives away 17. How many pencils are left?"],
    "rag": [f"Answer from the text.\n\n{_PASSAGE}\n\nQuestion: What did the lighthouse burn before 1934?"],
}


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A first user turn."""

    category: str
    text: str


def load_prompts(dataset: Path | None, count: int) -> list[PromptItem]:
    """count prompts spread evenly over the categories, the same ones each time; fewer when there are fewer."""
    by_category: dict[str, list[str]] = defaultdict(list)
    if dataset is None:
        by_category.update(_OWN)
    else:
        for line in dataset.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            by_category[record["category"]].append(record["turns"][0])
    items: list[PromptItem] = []
    depth = 0
    while len(items) < count and any(len(texts) > depth for texts in by_category.values()):
        items += [PromptItem(name, texts[depth]) for name, texts in by_category.items() if len(texts) > depth]
        depth += 1
    return items[:count]
