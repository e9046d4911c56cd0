"""One measured figure, small statistics, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass
class Figure:
    """A row of the table. Times are milliseconds; `of_…` are shares of the floors measured in the same run."""

    name: str
    per_second: float | None = None
    of_function: float | None = None
    of_statement: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    cpu_us: float | None = None
    server_cpu_us: float | None = None
    bytes: int | None = None
    count: int | None = None
    note: str = ""
    goal: str = ""

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


def latency(name: str, seconds: Sequence[float], **more: Any) -> Figure:
    p50, p95, p99 = (round(percentile(seconds, share) * 1000, 2) for share in (0.5, 0.95, 0.99))
    return Figure(name, p50=p50, p95=p95, p99=p99, count=len(seconds), **more)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; `share` from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(values: Iterable[float]) -> float:
    return float(median(values))


_COLUMNS = (
    ("figure", "name"),
    ("per second", "per_second"),
    ("of function", "of_function"),
    ("of statement", "of_statement"),
    ("p50 ms", "p50"),
    ("p95 ms", "p95"),
    ("p99 ms", "p99"),
    ("CPU µs", "cpu_us"),
    ("server µs", "server_cpu_us"),
    ("bytes", "bytes"),
    ("n", "count"),
    ("aim", "goal"),
    ("", "note"),
)


def table(rows: Sequence[dict[str, Any]], columns: Sequence[tuple[str, str]] = _COLUMNS) -> str:
    cells = [[title for title, _ in columns], *([_cell(row.get(name)) for _, name in columns] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Return tables for a page: rates, times and the rest, each with the columns it uses."""
    rates = [row for row in rows if "per_second" in row]
    times = [row for row in rows if "p50" in row]
    rest = [row for row in rows if row not in rates and row not in times]
    return "\n\n".join(
        table(part, [c for c in _COLUMNS if any(c[1] in row for row in part)]) for part in (rates, times, rest)
    )


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case float() if value >= 100:
            return f"{value:,.0f}"
        case float():
            return f"{value:.2f}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)
