"""The corpus: docstrings of installed packages, one document for each module with enough text.

The lock file pins the packages, so the same installation always gives the same documents, byte for byte. An edition is a
set of packages at given versions. A review keeps the edition it began with, even if packages are upgraded meanwhile.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import PurePosixPath
from typing import Any

import psycopg

from durableagents import BusinessFailure, TransportError
from runs.connections import dsn

PACKAGES = ("channels", "Django", "django-q2", "djangorestframework", "httpx", "jinja2", "psycopg", "psycopg-pool")
# The version of the rules that turn files into documents. A change of the rules makes a new edition.
_MAKING = "1"
SHORTEST, LONGEST = 600, 8000  # characters
_NO_PROSE = frozenset({"locale", "migrations", "tests", "test", "_vendor"})


@dataclass(frozen=True)
class Document:
    """`id` is the module's name, `source` the package and its version, `sha256` the digest of `body`."""

    id: str
    source: str
    body: str

    @property
    def sha256(self) -> str:
        return digest(self.body)


def digest(text: str) -> str:
    """SHA-256 of a text's UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def edition() -> str:
    """Return the name of the edition that is currently installed. Raises PackageNotFoundError."""
    versions = [f"{name}=={distribution(name).version}" for name in PACKAGES]
    return digest("\n".join([_MAKING, *versions]))[:16]


def documents() -> list[Document]:
    """Every document of the edition, by id. Takes seconds. Raises PackageNotFoundError."""
    found = {each.id: each for name in PACKAGES for each in _of(distribution(name))}
    return [found[key] for key in sorted(found)]


def _of(package: Distribution) -> Iterator[Document]:
    source = f"{package.metadata['Name']} {package.version}"
    for file in package.files or ():
        path = PurePosixPath(file)
        if path.suffix != ".py" or path.is_absolute() or ".." in path.parts or _NO_PROSE & set(path.parts):
            continue
        with open(str(package.locate_file(file)), encoding="utf-8", errors="replace") as module:
            body = prose(module.read())
        if len(body) >= SHORTEST:
            yield Document(_module(path), source, body[:LONGEST].rstrip())


def _module(path: PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# CPython 3.11's parser counts its depth across threads, and fails where two end in another order.
_PARSING = threading.Lock()


def prose(code: str) -> str:
    """Return the text of a module's docstrings, outermost first, without characters that a database cannot store.

    Return "" for code that this version of Python cannot parse.
    """
    if '"""' not in code and "'''" not in code:
        return ""
    try:
        with _PARSING:
            tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return ""
    said = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                said.append(text if isinstance(node, ast.Module) else f"{node.name}: {text}")
    whole = "\n\n".join(said).replace("\x00", "")
    return whole.encode("utf-8", "replace").decode()


_IS_THERE = "SELECT count(*) FROM durableagents_document WHERE edition = %s"
_DIGEST = (
    "SELECT encode(sha256(convert_to(string_agg(id || ' ' || sha256, E'\\n' ORDER BY id COLLATE \"C\"), 'UTF8')), 'hex')"
    " FROM durableagents_document WHERE edition = %s"
)
# Sorted and in one transaction: if two processes fill it at once, one waits for the other and adds nothing.
_ADD = (
    "INSERT INTO durableagents_document (edition, id, source, body, sha256) VALUES (%s, %s, %s, %s, %s)"
    " ON CONFLICT (edition, id) DO NOTHING"
)
# Any of the words, best match first: a document rarely contains all the words that a person types.
_SEARCH = """
WITH wanted AS (SELECT replace(plainto_tsquery('english', %(words)s)::text, '&', '|')::tsquery AS query)
SELECT id, source, sha256, round(ts_rank_cd(words, query, 1)::numeric * 1000)::int AS score
FROM durableagents_document, wanted WHERE edition = %(edition)s AND words @@ query
ORDER BY score DESC, id COLLATE "C" LIMIT %(most)s
"""
_FETCH = "SELECT id, source, body, sha256 FROM durableagents_document WHERE edition = %s AND id = %s"


@dataclass(frozen=True)
class Shelf:
    """An edition in the library: the number of its documents, and a digest of all their ids and digests."""

    edition: str
    documents: int
    sha256: str


async def fill() -> Shelf:
    """Load the installed edition into the library unless it is there already. Raises TransportError, and BusinessFailure
    if a package of the corpus isn't installed."""
    try:
        name = edition()
    except PackageNotFoundError as missing:
        problem = f"{missing.name} is not installed, and the library is made of it: install requirements-dev.lock"
        raise BusinessFailure(problem, code="no_corpus") from missing
    async with _connection() as connection:
        if not await _count(connection, name):
            found = await asyncio.to_thread(documents)
            rows = [(name, each.id, each.source, each.body, each.sha256) for each in found]
            async with connection.transaction(), connection.cursor() as cursor:
                await cursor.executemany(_ADD, rows)
        row = await (await connection.execute(_DIGEST, [name])).fetchone()
        assert row is not None
        return Shelf(name, await _count(connection, name), row[0])


async def search(edition: str, words: str, most: int) -> list[dict[str, Any]]:
    """Return the best documents for some words, each with id, source, sha256 and score, always in the same order.

    Raises TransportError, and BusinessFailure if the library doesn't have the edition.
    """
    async with _connection() as connection:
        if not await _count(connection, edition):
            raise BusinessFailure(f"the library has no edition {edition}", code="no_such_edition")
        rows = await connection.execute(_SEARCH, {"words": words, "edition": edition, "most": most})
        return [dict(zip(("id", "source", "sha256", "score"), row, strict=True)) for row in await rows.fetchall()]


async def fetch(edition: str, document_id: str) -> Document:
    """Return one document after comparing it with its digest.

    Raises TransportError, and BusinessFailure if the document is missing or was altered.
    """
    async with _connection() as connection:
        row = await (await connection.execute(_FETCH, [edition, document_id])).fetchone()
    if row is None:
        raise BusinessFailure(f"the library has no document {document_id!r}", code="no_such_document")
    found = Document(row[0], row[1], row[2])
    if found.sha256 != row[3]:
        raise BusinessFailure(f"the text of {document_id!r} is not what its digest says", code="altered")
    return found


async def _count(connection: psycopg.AsyncConnection[Any], edition: str) -> int:
    row = await (await connection.execute(_IS_THERE, [edition])).fetchone()
    assert row is not None
    return int(row[0])


@asynccontextmanager
async def _connection() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    try:
        async with await psycopg.AsyncConnection.connect(dsn(name="durableagents library"), autocommit=True) as opened:
            yield opened
    except psycopg.OperationalError as error:
        raise TransportError(f"the library's database does not answer: {str(error).splitlines()[0]}") from error
