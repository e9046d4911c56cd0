"""`manage.py runs to-test RUN`: turns one run into a test of its agent."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_bytes
from typing import Any
from uuid import UUID

from django.conf import settings

from durableagents.contrib.replay.files import FULL, REDACTED
from durableagents.contrib.replay.reading import make_test
from ledger.errors import InvalidInput
from runs.features import RunCommand


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=None, help="for to-test: a new file (default: standard output)")
    parser.add_argument("--payloads", choices=[REDACTED, FULL], default=REDACTED, help="for to-test")
    parser.add_argument("--redact", action="append", default=[], metavar="PATH", help="for to-test: a private field")


def _lines(run_id: UUID, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the source of the test, or write it to a new file. Raises NotFound, InvalidInput."""
    out = options["out"]
    try:
        paths = (*settings.DURABLEAGENTS.redact, *options["redact"])
        text = make_test(run_id, paths=paths, salt=token_bytes(16), payloads=options["payloads"])
        if out is None:
            yield text
            return
        with out.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidInput(f"{out} already exists: name a new file") from None
    except OSError as error:
        raise InvalidInput(f"cannot write {out}: {error.strerror}") from None
    except ValueError as error:  # includes InvalidRecording
        raise InvalidInput(f"no test can be written from run {run_id}: {error}") from None


TO_TEST = RunCommand(add_arguments=_add_arguments, lines=_lines)
