"""Storage of large values outside the database. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class LargeValuesConfig(AppConfig):
    name = "durableagents.contrib.large_values"
    label = "large_values"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Install this app's feature if the settings name a store."""
        from durableagents.contrib.large_values import stores
        from durableagents.contrib.large_values.own_features import feature
        from durableagents.server import health
        from ledger import codec, privileges
        from runs import features

        store = stores.configured()
        if store is None:
            return
        codec.use_store(store)
        features.install(feature(store))
        health.more_checks["large_values"] = store.problem
        if stores.refusal not in privileges.others:
            privileges.others.append(stores.refusal)
