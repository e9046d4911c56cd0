"""Large values are kept outside the database. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class LargeValuesConfig(AppConfig):
    name = "durableagents.contrib.large_values"
    label = "large_values"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Use the store of the settings, if they name one."""
        from durableagents.contrib.large_values import collecting, stores
        from durableagents.server import health
        from ledger import codec, privileges
        from runs import background, features

        store = stores.configured()
        if store is None:
            return
        codec.use_store(store)
        features.install(
            features.Feature(
                name="large values",
                periodic=(background.Duty("large values: orphans", collecting.IS_DUE, collecting.collect_when_due),),
            )
        )
        health.more_checks["large_values"] = store.problem
        if stores.refusal not in privileges.others:
            privileges.others.append(stores.refusal)
