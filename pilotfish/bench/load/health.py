"""Whether the client itself was fast enough for its figures to be the service's."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.percentiles import Percentiles, percentiles_ms

MAX_LAG_MS = 10.0
"""Later than this at the 99th percentile, what the client does shows in the figures."""
MAX_CPU_SHARE = 0.9
"""One Python process has one core: above this it is the bottleneck."""


class ClientHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the load generator fared."""

    schedule_lag_ms: Percentiles | None
    """From when requests were due to when they were sent; None in the closed loop."""
    loop_lag_ms: Percentiles | None
    """How late its event loop woke: what tokens waited for their time stamp."""
    cpu_share: float
    """Of one core."""
    warnings: list[str]


def client_health(windows: Sequence[Window], level: Level) -> ClientHealth:
    """Over all runs at one load."""
    lags_s = (record.lag_s for window in windows for record in window.measured)
    schedule_lag = percentiles_ms(lags_s) if level.is_open_loop else None
    loop_lag = percentiles_ms(lag_s for window in windows for lag_s in window.loop_lags_s)
    cpu_share = max((window.cpu_share for window in windows), default=0.0)
    return ClientHealth(
        schedule_lag_ms=schedule_lag,
        loop_lag_ms=loop_lag,
        cpu_share=cpu_share,
        warnings=_warnings(schedule_lag, loop_lag, cpu_share),
    )


def _warnings(schedule_lag: Percentiles | None, loop_lag: Percentiles | None, cpu_share: float) -> list[str]:
    warnings = []
    if schedule_lag is not None and schedule_lag.p99 > MAX_LAG_MS:
        warnings.append(
            f"the client sent 1 % of the requests more than {schedule_lag.p99:.0f} ms late: it was too slow for this "
            "load. Times from the schedule include that, times from sending do not"
        )
    if loop_lag is not None and loop_lag.p99 > MAX_LAG_MS:
        warnings.append(f"the client noticed tokens up to {loop_lag.p99:.0f} ms late (99th percentile)")
    if cpu_share > MAX_CPU_SHARE:
        warnings.append(
            f"the client used {cpu_share:.0%} of a core: it was the bottleneck, use several or a faster machine"
        )
    return warnings
