"""The corpus: what the docstrings of installed packages say, a document for each module that says enough.

The lock file pins the packages, so the same installation always gives the same documents, byte for byte. An edition is a
set of packages at their versions; a review keeps to the one it began with, also where an upgrade comes in its middle.
"""

from __future__ import annotations

import ast
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import PurePosixPath

PACKAGES = ("channels", "Django", "django-q2", "djangorestframework", "httpx", "jinja2", "psycopg", "psycopg-pool")
# How documents are made of files: another way of making them is another edition.
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
    """The name of the corpus that is installed now. Raises PackageNotFoundError."""
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
    """What a module's docstrings say, from the outside in, without what no database holds. Nothing, for what is no
    program of this Python."""
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
