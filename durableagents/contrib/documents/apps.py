"""Documents of approvals, shown to the people who decide. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class DocumentsConfig(AppConfig):
    name = "durableagents.contrib.documents"
    label = "documents"
    # durableagents/grants.py reads these.
    append_only_tables = ("approvals_document",)
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.documents.urls"

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.documents.panel import ShownInFull, documents_panel
        from durableagents.contrib.documents.storage import store_statement
        from durableagents.contrib.documents.verify import DocumentBytes
        from runs import features

        features.install(
            features.Feature(
                name="documents",
                store_documents=store_statement,
                decision_guards=(ShownInFull(),),
                approval_panels=(documents_panel,),
                run_checks=(DocumentBytes,),
            )
        )
