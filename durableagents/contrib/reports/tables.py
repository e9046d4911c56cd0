"""A finished report as data, and its conversion to JSON and CSV. Page, JSON and CSV show the same values. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from durableagents.contrib.reports.period import iso

Value = str | int | bool | Decimal | datetime | UUID | None
Kind = Literal["text", "run", "time", "number", "seconds", "usd", "amount", "percent", "bytes"]
NUMBERS = frozenset({"number", "seconds", "usd", "amount", "percent", "bytes"})
# Spreadsheets treat a cell that begins with one of these as a formula (OWASP, CSV Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
MAX_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in JSON and CSV, its title on the page, and the kind of its values."""

    name: str
    label: str
    kind: Kind = "text"

    @property
    def is_number(self) -> bool:
        return self.kind in NUMBERS


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `total` is the number of all rows; `rows` contains only the first ones."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    total: int = 0

    @classmethod
    def of(
        cls, name: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Value]], total: int | None = None
    ) -> Table:
        """Build a table with at most MAX_ROWS rows."""
        kept = tuple(tuple(row) for row in rows[:MAX_ROWS])
        return cls(name, title, tuple(columns), kept, len(rows) if total is None else total)

    @property
    def is_cut(self) -> bool:
        return self.total > len(self.rows)

    @property
    def cells(self) -> list[list[tuple[Column, str, str]]]:
        """Return the rows for a page; each cell has its column, the text shown, and the exact value."""
        return [
            [
                (column, value_text(value, column.kind), text_of(value))
                for column, value in zip(self.columns, row, strict=True)
            ]
            for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report. A `value` of None means that there was nothing to count."""

    name: str
    label: str
    value: Value
    kind: Kind = "number"

    @property
    def text(self) -> str:
        return "–" if self.value is None else value_text(self.value, self.kind) + UNITS.get(self.kind, "")


UNITS: Mapping[str, str] = {"percent": " %", "seconds": " s", "usd": " USD", "bytes": " bytes"}


@dataclass(frozen=True, slots=True)
class Report:
    """A finished report. `subject` is the run that it is about; `notes` describe its limitations."""

    name: str
    title: str
    made_at: datetime
    start: datetime | None
    end: datetime | None
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    subject: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values. Amounts and shares are exact decimals as strings; times are ISO 8601."""
        return {
            "report": self.name,
            "title": self.title,
            "made_at": iso(self.made_at),
            "from": iso(self.start) if self.start else None,
            "to": iso(self.end) if self.end else None,
            "subject": self.subject,
            "notes": list(self.notes),
            "figures": [
                {"name": f.name, "label": f.label, "kind": f.kind, "value": plain(f.value)} for f in self.figures
            ],
            "tables": [
                {
                    "name": table.name,
                    "title": table.title,
                    "total": table.total,
                    "columns": [{"name": c.name, "label": c.label, "kind": c.kind} for c in table.columns],
                    "rows": [[plain(value) for value in row] for row in table.rows],
                }
                for table in self.tables
            ],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Report:
        """Parse the result of `to_json`. Times remain texts."""
        return cls(
            name=stored["report"],
            title=stored["title"],
            made_at=datetime.fromisoformat(stored["made_at"]),
            start=datetime.fromisoformat(stored["from"]) if stored["from"] else None,
            end=datetime.fromisoformat(stored["to"]) if stored["to"] else None,
            figures=tuple(
                Figure(f["name"], f["label"], _read(f["value"], f["kind"]), f["kind"]) for f in stored["figures"]
            ),
            tables=tuple(_table(each) for each in stored["tables"]),
            subject=stored["subject"],
            notes=tuple(stored["notes"]),
        )


def _table(stored: Mapping[str, Any]) -> Table:
    columns = tuple(Column(c["name"], c["label"], c["kind"]) for c in stored["columns"])
    rows = (tuple(_read(value, c.kind) for value, c in zip(row, columns, strict=True)) for row in stored["rows"])
    return Table(stored["name"], stored["title"], columns, tuple(rows), stored["total"])


def _read(value: Any, kind: Kind) -> Value:
    return Decimal(value) if kind in NUMBERS and isinstance(value, str) else value


def plain(value: Value) -> Any:
    """Return a value in the form used in JSON."""
    return value if value is None or isinstance(value, bool | int) else text_of(value)


def text_of(value: Value) -> str:
    """Return the exact text of a value, which is the same in CSV, JSON and on the page."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Decimal():
            return f"{value:f}"
        case datetime():
            return iso(value)
        case _:
            return str(value)


def value_text(value: Value, kind: Kind) -> str:
    """Return a value's text for a page. Long numbers are grouped by three digits."""
    text = text_of(value)
    if kind not in NUMBERS:
        return text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, rest = digits.partition(".")
    if not (whole.isascii() and whole.isdigit()) or len(whole) < 4:
        return text
    return f"{sign}{int(whole):,}{point}{rest}"


def csv_text(report: Report, table: str = "") -> str:
    """Return all tables as CSV, each below its title, or only the named one.

    Raises KeyError for a name that the report doesn't have."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    figures = Table.of(
        "figures",
        "Figures",
        (Column("figure", "Figure"), Column("value", "Value"), Column("unit", "Unit")),
        [(f.name, f.value, f.kind) for f in report.figures],
    )
    every = {each.name: each for each in (figures, *report.tables)}
    for n, each in enumerate([every[table]] if table else every.values()):
        if not table:
            writer.writerows([[]] * (n > 0) + [[inert(each.title)]])
        writer.writerow([column.name for column in each.columns])
        writer.writerows([[cell(value) for value in row] for row in each.rows])
    return out.getvalue()


def cell(value: Value) -> str:
    """Return a value for CSV. Numbers keep their sign; texts can't become formulas."""
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return text_of(value)
    return inert(text_of(value))


def inert(text: str) -> str:
    """Return text that no spreadsheet treats as a formula.

    A quote is put in front of a text that begins like a formula.
    """
    text = text.replace("\x00", "\ufffd")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def as_bytes(content: Mapping[str, Any]) -> bytes:
    """Return the JSON of a report as bytes; the digest of a stored report is computed from them."""
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "replace")
