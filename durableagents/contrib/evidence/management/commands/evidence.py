"""`manage.py evidence export RUN… | --filter … --output FILE`."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from django.core.management.base import BaseCommand
from django.http import QueryDict

from durableagents.contrib.evidence.export import MAX_RUNS, Exported, export
from durableagents.contrib.evidence.leaving_out import Choice, paths_in
from ledger.codec import ContentUnavailable
from ledger.errors import DurableAgentsError
from runs.management.shell import operator
from runs.queries.run_list import Filters, stretch
from runs.queries.searching import BadSearch

_NAMES = ("state", "agent", "q", "parent", "where")
_AT_ONCE = 200


class NotExported(Exception):
    """Nothing was written. The message gives the reason."""


class Command(BaseCommand):
    help = "Evidence bundles of runs: exit code 0, or 2 with the reason if nothing was exported."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        out = verbs.add_parser("export", help="write one bundle of one or more runs")
        out.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs")
        out.add_argument(
            "--filter",
            default="",
            metavar="FILTER",
            help="the runs that their list shows for this query: 'state=completed&agent=refund&where=amount > 100'",
        )
        out.add_argument("--output", type=Path, required=True, metavar="FILE", help="name of a new file")
        out.add_argument(
            "--redact", action="append", default=[], metavar="PATH,…", help="fields to leave out: iban,customer.name"
        )
        out.add_argument("--without-payloads", action="store_true", help="leave out all payloads")
        out.add_argument("--reason", default="", help="for whom, or why; recorded")

    def handle(self, **given: Any) -> None:
        """Write the whole bundle, or nothing."""
        output: Path = given["output"]
        try:
            paths = [path for text in given["redact"] for path in paths_in(text)]
            choice = Choice(paths, given["without_payloads"])
            done = _write(_chosen(given["runs"], given["filter"]), output, choice, given["reason"].strip())
        except (NotExported, ContentUnavailable) as error:
            raise self._refusal(str(error)) from None
        except DurableAgentsError as error:
            problems = "; ".join(each["problem"] for each in error.extra.get("errors", ()))
            raise self._refusal(f"{error.detail} {problems}".strip()) from None
        except OSError as error:
            raise self._refusal(f"cannot write {output}: {error.strerror}") from None
        self.stdout.write(f"{output}: {done.runs} run(s), {done.size} bytes, SHA-256 {done.sha256}")
        if choice.is_any:
            self.stdout.write(f"{done.left_out} value(s) left out: {', '.join(choice.words)}")
        self.stdout.write("Verify it, in its folder, with the program that it contains:")
        code = f"import zipfile; zipfile.ZipFile({output.name!r}).extract('verify.py')"
        is_plain = not set('"$`\\!') & set(code)
        self.stdout.write(f'  python3 -c "{code}"' if is_plain else f"  python3 -c {quote(code)}")
        self.stdout.write(f"  python3 -I verify.py {quote(output.name)}")

    def _refusal(self, why: str) -> SystemExit:
        self.stderr.write(f"evidence: {why}")
        return SystemExit(2)


def _write(run_ids: Sequence[UUID], output: Path, choice: Choice, reason: str) -> Exported:
    """Write the bundle to a temporary file and rename it, so that no partial bundle exists. Raises NotExported."""
    if output.exists():
        raise NotExported(f"{output} already exists: name a new file")
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
            done = export(run_ids, file, by=operator(), choice=choice, reason=reason)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, output)  # fails if the file was created meanwhile
    except FileExistsError:
        raise NotExported(f"{output} already exists: name a new file") from None
    finally:
        part.unlink(missing_ok=True)
    return done


def _chosen(runs: Sequence[str], filter_text: str) -> list[UUID]:
    """Return the runs with these ids, or those of a filter, newest first. Raises NotExported."""
    if bool(runs) == bool(filter_text):
        raise NotExported("name runs, or give --filter, and not both")
    try:
        return [UUID(run) for run in runs] if runs else _runs_of_filter(_filters(filter_text))
    except BadSearch as error:
        raise NotExported(error.detail) from None
    except ValueError:
        raise NotExported(f"{next(run for run in runs if not _is_id(run))[:80]!r} is not a run id") from None


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _filters(text: str) -> Filters:
    """Parse a filter. Raises NotExported if it is invalid, since a misread filter must not export other runs."""
    pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True)
    if not pairs:
        raise NotExported(f"--filter {text[:80]!r} can't be read: write it as 'state=completed&agent=refund'")
    query = QueryDict(mutable=True)
    for name, value in pairs:
        if name not in _NAMES or name in query or not value.strip():
            raise NotExported(f"--filter: {name[:40]!r} is unknown, empty or given twice; known: {', '.join(_NAMES)}")
        query[name] = value
    filters = Filters.of(query)
    for name, value in pairs:
        if getattr(filters, name) != value.strip():
            raise NotExported(f"--filter: {name} can't be {value[:80]!r}")
    return filters


def _runs_of_filter(filters: Filters) -> list[UUID]:
    """Return all runs that a filter matches.

    Raises NotExported if there are more than a bundle may have, instead of leaving some out.
    """
    cursor, ids = "", list[UUID]()
    while len(ids) <= MAX_RUNS:
        page = stretch(filters, limit=_AT_ONCE, cursor=cursor)
        ids += [run.id for run in page.runs] if page else []
        cursor = page.following if page else ""
        if not cursor:
            break
    if len(ids) > MAX_RUNS or (filters.q and filters.found.is_cut):
        raise NotExported(f"more than {MAX_RUNS} runs match: narrow the filter")
    if not ids:
        raise NotExported("no run matches the filter")
    return ids
