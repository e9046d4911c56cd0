"""The corpus is the same at every look, is put there once whoever comes first, and no altered text is handed out."""

from __future__ import annotations

import asyncio
import hashlib

import psycopg
import pytest
from django.conf import settings

from durableagents import BusinessFailure, TransportError
from durableagents.demo.literature import corpus, library
from runs.connections import dsn
from tests.conftest import free_ports

pytestmark = pytest.mark.django_db(transaction=True)


def test_there_are_hundreds_of_documents_and_they_are_the_same_at_every_look() -> None:
    once, again = corpus.documents(), corpus.documents()
    assert once == again and len(once) >= 200
    assert len({each.id for each in once}) == len(once)
    assert all(corpus.SHORTEST - 1 <= len(each.body) <= corpus.LONGEST for each in once)
    assert {each.source.rpartition(" ")[0].lower() for each in once} >= {"django", "psycopg"}


def test_code_is_no_prose_and_docstrings_stand_in_their_order() -> None:
    code = '"""First."""\nX = "not this"\nclass A:\n    """Second\\x00."""\ndef f():\n    """Third \\ud800."""\n'
    assert corpus.prose(code) == "First.\n\nA: Second.\n\nf: Third ?."
    assert corpus.prose("x = 1\n") == ""
    assert corpus.prose('"""Fine."""\nprint "of another Python"\n') == ""


async def test_filling_it_twice_at_once_gives_one_shelf() -> None:
    first, second = await asyncio.gather(library.fill(), library.fill())
    assert first == second == await library.fill()
    ids = [f"{each.id} {each.sha256}" for each in corpus.documents()]
    assert first.documents == len(ids)
    assert first.sha256 == hashlib.sha256("\n".join(ids).encode()).hexdigest()


async def test_a_search_finds_what_the_words_mean_and_always_in_the_same_order() -> None:
    shelf = await library.fill()
    found = await library.search(shelf.edition, "transaction savepoint rollback", 10)
    assert len(found) == 10 and "django.db.transaction" in {row["id"] for row in found}
    assert found == await library.search(shelf.edition, "transaction savepoint rollback", 10)
    assert found == sorted(found, key=lambda row: (-row["score"], row["id"]))


@pytest.mark.parametrize(
    "words", ["", "the of and", "'); DROP TABLE x; --", "& | ! ( ) <-> :*", "\\ '' % {} \u202e", "ä" * 60]
)
async def test_no_words_are_a_query_language(words: str) -> None:
    shelf = await library.fill()
    await library.search(shelf.edition, words, 5)
    assert (await library.fill()).documents == shelf.documents


async def test_an_altered_text_and_an_unknown_one_are_refused() -> None:
    shelf = await library.fill()
    with psycopg.connect(dsn()) as connection:
        connection.execute("UPDATE durableagents_document SET body = 'Forged.' WHERE id = 'django.db.transaction'")
    try:
        with pytest.raises(BusinessFailure, match="not what its digest says"):
            await library.fetch(shelf.edition, "django.db.transaction")
        with pytest.raises(BusinessFailure, match="no document"):
            await library.fetch(shelf.edition, "django.db.nothing")
        with pytest.raises(BusinessFailure, match="no edition"):
            await library.search("another", "transaction", 5)
    finally:
        with psycopg.connect(dsn()) as connection:
            connection.execute("DELETE FROM durableagents_document")


async def test_an_edition_stays_as_it_was_when_another_is_installed() -> None:
    """An upgrade of a package in the middle of a review changes nothing for it."""
    with psycopg.connect(dsn()) as connection:
        body = "What a transaction was before the upgrade."
        row = ["before", "django.db.transaction", "Django 1.0", body, corpus.digest(body)]
        connection.execute(library._ADD, row)
    shelf = await library.fill()
    assert (await library.fetch("before", "django.db.transaction")).source == "Django 1.0"
    assert [row["source"] for row in await library.search("before", "transaction", 9)] == ["Django 1.0"]
    assert (await library.fetch(shelf.edition, "django.db.transaction")).source != "Django 1.0"


async def test_a_database_that_does_not_answer_is_asked_again_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = await library.fill()
    monkeypatch.setitem(settings.DATABASES["default"], "PORT", str(free_ports(1)[0]))
    for call in (library.fill(), library.search(shelf.edition, "x", 1), library.fetch(shelf.edition, "x")):
        with pytest.raises(TransportError, match="does not answer"):
            await call


async def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "PACKAGES", (*corpus.PACKAGES, "no-such-package"))
    with pytest.raises(BusinessFailure, match=r"no-such-package is not installed.*requirements\.lock"):
        await library.fill()


async def test_the_search_goes_by_the_index() -> None:
    await library.fill()
    with psycopg.connect(dsn()) as connection:
        connection.execute("SET enable_seqscan = off")
        plan = connection.execute(
            "EXPLAIN SELECT id FROM durableagents_document WHERE words @@ plainto_tsquery('english', 'transaction')"
        ).fetchall()
    assert "durableagents_document_words" in str(plan)
