"""The archive file of a family of runs: its rows as NDJSON, compressed with zstd.

Pure, except for reading and writing files.

The first line is a head that lists the runs. Each table of each run then has a line `{"part": …}`, a line `["table",
row]` for each row in the JSON that PostgreSQL returns, and a line `{"rows": …, "sha256": …}` that covers these. The
last line covers all parts. The same rows produce the same bytes, so that archiving can continue after an interruption
with the file it wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from uuid import UUID

import zstandard

from ledger.chain import Link, genesis
from ledger.models import Event
from ledger.rows import row_of
from ledger.verification.archives import ArchiveDamaged

FORMAT = "durableagents archive 1"
EVENTS = "ledger_event"
_CHUNK = 1024 * 1024
# A row has at most a few megabytes. A longer line can't come from this application, so it is not read into memory.
MAX_LINE = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one run in one table, as JSON texts."""

    run_id: UUID
    table: str
    rows: Iterable[str]


class Writer:
    """Writes one archive to a file. `digest` and `size` are those of the written bytes."""

    def __init__(self, target: IO[bytes], family: UUID, runs: Mapping[UUID, tuple[int, bytes]]) -> None:
        self._target, self._hash, self.size = target, hashlib.sha256(), 0
        self._zstd = zstandard.ZstdCompressor(level=6).compressobj()
        self._parts = hashlib.sha256()
        self._count = 0
        heads = [{"run": str(run), "seq": seq, "chain": chain.hex()} for run, (seq, chain) in sorted(runs.items())]
        self._line(json.dumps({"format": FORMAT, "family": str(family), "runs": heads}))

    def add(self, part: Part) -> int:
        """Write a part; return the number of its rows."""
        self._line(json.dumps({"part": self._count, "run": str(part.run_id), "table": part.table}))
        digest, count = hashlib.sha256(), 0
        for row in part.rows:
            line = f'["{part.table}",{row}]'
            digest.update(line.encode() + b"\n")
            self._line(line)
            count += 1
        end = json.dumps({"rows": count, "sha256": digest.hexdigest()})
        self._parts.update(end.encode() + b"\n")
        self._line(end)
        self._count += 1
        return count

    def close(self) -> bytes:
        """Write the last line; return the file's SHA-256."""
        self._line(json.dumps({"parts": self._count, "sha256": self._parts.hexdigest()}))
        self._put(self._zstd.flush())
        return self._hash.digest()

    def _line(self, text: str) -> None:
        if "\n" in text:
            raise ValueError("a row with a line break")
        self._put(self._zstd.compress(text.encode() + b"\n"))

    def _put(self, data: bytes) -> None:
        self._target.write(data)
        self._hash.update(data)
        self.size += len(data)


@dataclass
class Reader:
    """Reads one archive and checks every digest. `read` raises ArchiveDamaged, which names the file."""

    name: str
    source: IO[bytes]
    digest: bytes
    runs: dict[UUID, tuple[int, bytes]] = field(default_factory=dict)
    counts: dict[UUID, dict[str, int]] = field(default_factory=dict)

    def read(self) -> Iterator[tuple[UUID, str, str]]:
        """Yield run, table and row text of every row. The whole file is compared with its digest first."""
        try:
            self._check_digest()
            yield from self._read()
        except (zstandard.ZstdError, ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            raise self._damaged(f"can't be read: {type(error).__name__}: {error}") from error

    def _read(self) -> Iterator[tuple[UUID, str, str]]:
        lines = self._lines()
        head = json.loads(next(lines, b"null")) or {}
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise self._damaged("is not an archive of runs")
        self.runs = {UUID(each["run"]): (int(each["seq"]), bytes.fromhex(each["chain"])) for each in head["runs"]}
        parts = hashlib.sha256()
        for count, line in enumerate(lines):
            data = json.loads(line)
            if "parts" in data:
                if (data["parts"], data["sha256"]) != (count, parts.hexdigest()):
                    raise self._damaged("was altered: its parts are not the original ones")
                break
            if data["part"] != count:
                raise self._damaged(f"was altered: part {count} is missing")
            run_id, table = UUID(data["run"]), str(data["table"])
            end = yield from self._part(lines, run_id, table)
            parts.update(end + b"\n")
        else:
            raise self._damaged("was cut off")
        for line in lines:
            raise self._damaged(f"has more after its end: {line[:40]!r}")

    def _part(self, lines: Iterator[bytes], run_id: UUID, table: str) -> Any:
        prefix, digest = f'["{table}",'.encode(), hashlib.sha256()
        chain = Chain(run_id) if table == EVENTS else None
        for count, line in enumerate(lines):
            if not line.startswith(prefix):
                data = json.loads(line)
                if (data["rows"], data["sha256"]) != (count, digest.hexdigest()):
                    raise self._damaged(
                        f"was altered: the rows of {table} of run {run_id} differ from the original ones"
                    )
                self.counts.setdefault(run_id, {})[table] = count
                if chain is not None and (chain.seq, chain.hash) != self.runs.get(run_id):
                    raise self._damaged(f"does not contain the last event of run {run_id} that its first line names")
                return line
            digest.update(line + b"\n")
            row = line[len(prefix) : -1].decode()
            if chain is not None and (problem := chain.follow(row)):
                raise self._damaged(f"run {run_id}: {problem}")
            yield run_id, table, row
        raise self._damaged("was cut off")

    def _lines(self) -> Iterator[bytes]:
        expands, buffer = zstandard.ZstdDecompressor().decompressobj(), bytearray()
        while data := self.source.read(_CHUNK):
            buffer += expands.decompress(data)
            *whole, rest = bytes(buffer).split(b"\n")
            yield from whole
            buffer = bytearray(rest)
            if len(buffer) > MAX_LINE:
                raise ValueError("a line is too long")
        if buffer:
            raise self._damaged("was cut off")

    def _check_digest(self) -> None:
        total = hashlib.sha256()
        while data := self.source.read(_CHUNK):
            total.update(data)
        if total.digest() != self.digest:
            raise self._damaged(
                f"was altered: its SHA-256 is {total.hexdigest()}, but the register says {self.digest.hex()}"
            )
        self.source.seek(0)

    def _damaged(self, what: str) -> ArchiveDamaged:
        return ArchiveDamaged(f"the archive {self.name} {what}")


class Chain:
    """Checks the hash chain of one run's events while they are read."""

    def __init__(self, run_id: UUID) -> None:
        self.seq, self.hash = 0, genesis(run_id)

    def follow(self, text: str) -> str:
        """Check the next event; return its problem, empty if none."""
        link = Link.of(row_of(Event, text))
        if link.seq != self.seq + 1:
            return f"event {self.seq + 1} is missing"
        if link.prev_hash != self.hash or not link.is_as_written(link.body()):
            return f"event {link.seq} was changed: its content does not match its hash"
        self.seq, self.hash = link.seq, link.hash
        return ""
