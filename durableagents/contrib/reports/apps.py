"""Reports over the record: on screen, as CSV and as JSON. See README.md."""

from django.apps import AppConfig


class ReportsConfig(AppConfig):
    name = "durableagents.contrib.reports"
    label = "reports"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = (
        "reports_finding",
        "reports_closure",
        "reports_storagesample",
        "reports_storedreport",
        "reports_mailing",
    )
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.reports.urls"

    def ready(self) -> None:
        """Install this app's feature, and the link on the audit page."""
        from durableagents.contrib.reports.own_features import PAGES, feature
        from ledger.web import navigation
        from runs import features

        features.install(feature())
        navigation.add_pages(*PAGES)
