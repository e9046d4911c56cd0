"""Search of runs by words and by typed attributes. See README.md."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class SearchConfig(AppConfig):
    name = "durableagents.contrib.search"
    label = "search"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py. The runtime role may only read: a trigger that runs as the owner writes the rows.
    read_only_tables = ("runs_attribute",)

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.search import queries, reindexing, words
        from durableagents.contrib.search.verify import Attributes
        from runs.features import Feature, RunSearch, install

        post_migrate.connect(reindexing.reindex, sender=self)
        install(
            Feature(
                name="search",
                search=RunSearch(
                    terms=words.terms_of,
                    by_words=words.find_by_words,
                    by_attributes=queries.search_attributes,
                    attributes=queries.known_attributes,
                    orders=queries.sort_orders,
                    attributes_of=queries.attributes_of,
                ),
                run_facts={"attributes": queries.ATTRIBUTES},
                run_checks=(Attributes,),
                run_tables={"runs_attribute": "run_id"},
            )
        )
