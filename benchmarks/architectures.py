"""Which architectures are answered right, and is any answered wrongly?

Builds a small random model of every causal language model of the installed transformers, and of some that see images
and are asked for text alone, in float32, with windows and chunks that are shorter than the text, and answers with it:
by transformers' own greedy `generate`, and by our engine, plainly and with chains and trees of drafts. In bfloat16 the
engine's texts are compared with drafts and without. `--only NAME...` takes some of them.
"""

import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import shared.checkout  # noqa: F401  # finds tests.support
import torch
import transformers
from shared.report import Report, parser

from pilotfish.models.loading import silence_transformers
from tests.support.architectures import MULTIMODAL, NUM_OUTPUT_TOKENS, TOLERANCE, VARIANTS, examine, names

QUICK_EVERY = 8


def counts_of(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many architectures there are and are right, on which path; those that see images apart, variants aside."""
    own = [row for row in rows if row["architecture"] not in (*VARIANTS, *MULTIMODAL)]
    multimodal = [row for row in rows if row["architecture"] in MULTIMODAL]
    paths = Counter(row["path"].split(", ")[0] for row in own if row["outcome"] == "right")
    return {
        "architectures": len(own),
        "architectures right": paths.total(),
        "architectures on the paged KV cache": paths["paged"],
        "architectures with transformers' own cache": paths["own cache"],
        "multimodal": len(multimodal),
        "multimodal right": sum(row["outcome"] == "right" for row in multimodal),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--only", nargs="+", help="architectures, as transformers names them")
    options = options_parser.parse_args(arguments)
    silence_transformers()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    report = Report(
        "Which architectures are answered right?",
        {"transformers": transformers.__version__, "torch": torch.__version__, "output tokens": NUM_OUTPUT_TOKENS},
    )
    report.columns = {"architecture": "architecture", "outcome": "outcome", "path": "by", "reason": "why"}
    for name in options.only or list(names())[:: QUICK_EVERY if options.quick else 1]:
        start = time.perf_counter()
        finding = examine(name)
        report.row(
            architecture=name,
            outcome=finding.outcome,
            path=finding.path,
            reason=finding.reason,
            deviation=finding.deviation,
            seconds=round(time.perf_counter() - start, 1),
        )
        print(f"{name:30} {finding.outcome:8} {finding.path:26} {finding.reason[:90]}", flush=True)
    counts = Counter(row["outcome"] for row in report.rows)
    report.check("architectures that are answered wrongly", counts["wrong"], 0, "")
    report.check("architectures that crash", counts["crash"], 0, "")
    deviations = [row["deviation"] for row in report.rows if row["outcome"] == "right"]
    report.check(
        "largest deviation of right logits", 1e3 * max(deviations, default=0.0), 1e3 * TOLERANCE, "thousandths"
    )
    report.conditions |= {outcome: counts[outcome] for outcome in ("right", "refused", "wrong", "crash")}
    report.conditions |= counts_of(report.rows)
    report.check("architectures that are answered right", report.conditions["architectures right"], 120, "", "at least")
    report.finish(options, has_shown_rows=True)
    print(report.conditions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
