"""The corpus is the same at every look, is put there once whoever comes first, and no altered text is handed out."""

from __future__ import annotations

import asyncio
import hashlib

import psycopg
import pytest

from durableagents import BusinessFailure
from durableagents.demo.literature import corpus, library
from runs.connections import dsn

pytestmark = pytest.mark.django_db(transaction=True)


def test_there_are_hundreds_of_documents_and_they_are_the_same_at_every_look() -> None:
    once, again = corpus.documents(), corpus.documents()
    assert once == again and len(once) >= 200
    assert len({each.id for each in once}) == len(once)
    assert all(corpus.SHORTEST - 1 <= len(each.body) <= corpus.LONGEST for each in once)
    assert {each.source.rpartition(" ")[0].lower() for each in once} >= {"django", "psycopg"}


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
