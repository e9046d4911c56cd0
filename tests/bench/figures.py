"""Small statistics for tables of figures."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; `share` from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(values: Sequence[float]) -> str:
    """p50 / p95 / p99 of seconds, in milliseconds."""
    return " / ".join(f"{percentile(values, s) * 1000:.2f}" for s in (0.5, 0.95, 0.99))
