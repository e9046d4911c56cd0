"""Operations on many runs at once. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class BulkConfig(AppConfig):
    name = "durableagents.contrib.bulk"
    label = "bulk"
    default_auto_field = "django.db.models.BigAutoField"
    # durableagents/grants.py reads these.
    frozen_columns = {
        "runs_batch": {
            "id",
            "action",
            "said",
            "justification",
            "chosen",
            "total",
            "digest",
            "by",
            "person",
            "auth",
            "address",
            "made_at",
        },
        "runs_batchitem": {"id", "batch_id", "n", "run_id", "wait_id"},
    }
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.bulk.urls"

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.bulk import working
        from durableagents.contrib.bulk.verify import Batches
        from runs import features
        from runs.background import Duty

        features.install(
            features.Feature(
                name="bulk",
                periodic=(Duty("bulk", working.IS_DUE, working.work_off),),
                run_checks=(Batches,),
                run_list_links=(("Bulk actions…", "new_batch"), ("Bulk jobs", "batches")),
            )
        )
