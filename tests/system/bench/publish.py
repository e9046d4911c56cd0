"""`python -m tests.system.bench.publish FILE.json`: put a run's figures into the page on performance and the README.

Each page has a pair of marks, `<!-- figures -->` and `<!-- /figures -->`; what stands between them is replaced."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from tests.system.bench.figures import tables
from tests.system.bench.place import CHECKOUT

PAGE, README = CHECKOUT / "docs" / "explanation" / "performance.md", CHECKOUT / "README.md"


def put(page: Path, mark: str, text: str) -> None:
    """Replace what stands between a page's marks."""
    old = page.read_text()
    new, found = re.subn(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", lambda m: f"{m[1]}\n{text}\n\n{m[2]}", old, flags=re.DOTALL
    )
    if found != 1:
        raise SystemExit(
            f"{page.name}: the marks <!-- {mark} --> … <!-- /{mark} --> stand there {found} times, not once"
        )
    page.write_text(new)


def headline(rows: list[dict[str, Any]]) -> str:
    """The README's few lines."""
    by_name = {row["name"]: row for row in rows}

    def of(start: str) -> dict[str, Any]:
        found = next((row for name, row in by_name.items() if name.startswith(start)), None)
        if found is None:
            raise SystemExit(f"no figure {start!r}: only a whole run at scale 1 is published")
        return found

    def share(row: dict[str, Any]) -> str:
        return f"{row['per_second']:,.0f} a second ({row['of_function']:.0%} of the rate of bare SQL calls)"

    lines = [
        ("durable 1 KB steps, one commit each, 1 run", share(of("W1 one commit a step (pure), 1 run"))),
        ("keyed steps, two commits each, 32 runs", share(of("W1 two commits a step (keyed), 32 run"))),
        ("decision committed → next step begins, across processes", _p(of("W4"), "p50", "p99")),
        ("`kill -9` of a worker → next step begins", f"{_p(of('W5 kill'), 'p50', 'p99')}; {of('W5 effects')['note']}"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {what} | {answer} |" for what, answer in lines)])


def _p(row: dict[str, Any], *names: str) -> str:
    return ", ".join(f"{name} {row[name]:,.1f} ms" for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="what the bench wrote with --json")
    given = parser.parse_args()
    data = json.loads(given.figures.read_text())
    rows, detail = data["figures"], headline(data["figures"])
    put(PAGE, "figures", f"Measured on {data['conditions']}.\n\n{tables(rows)}")
    put(README, "figures", f"{detail}\n\n({data['conditions']})")


if __name__ == "__main__":
    main()
