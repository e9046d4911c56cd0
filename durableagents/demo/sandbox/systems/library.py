"""The library: turns texts into vectors, which costs, and keeps finished reports."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

from durableagents.demo.sandbox.web.wire import wrong

from ..effects import Receipt
from ..web.fields import Digest, Fields, Name, Text

DIMENSIONS = 8


class Embedding(Fields):
    """A text that is to become a vector."""

    document_id: Name
    sha256: Digest
    text: Text


class Report(Fields):
    """A report, with the digest that its sender computed of it."""

    title: Name
    sha256: Digest
    text: Text


def embed(connection: sqlite3.Connection, wanted: Embedding, receipt: Receipt) -> dict[str, Any]:
    """A vector of the text: always the same one. Each costs, so each is on record."""
    cursor = connection.execute(
        "INSERT INTO embeddings (document_id, sha256, run_id, created_at) VALUES (?, ?, ?, ?)",
        (wanted.document_id, wanted.sha256, receipt.run_id, receipt.received_at),
    )
    vector = [0] * DIMENSIONS
    for word in wanted.text.lower().split():
        vector[hashlib.sha256(word.encode()).digest()[0] % DIMENSIONS] += 1
    return {"embedding_id": f"EMB-{cursor.lastrowid:06d}", "vector": vector}


def publish(connection: sqlite3.Connection, report: Report, receipt: Receipt) -> dict[str, Any]:
    """Raises Problem 422 where the text is not what its digest says."""
    if hashlib.sha256(report.text.encode()).hexdigest() != report.sha256:
        raise wrong("sha256", "is not the digest of the text")
    cursor = connection.execute(
        "INSERT INTO reports (title, sha256, text, run_id, created_at) VALUES (?, ?, ?, ?, ?)",
        (report.title, report.sha256, report.text, receipt.run_id, receipt.received_at),
    )
    return {"report_id": f"REP-{cursor.lastrowid:06d}", "sha256": report.sha256}
