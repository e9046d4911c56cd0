"""The feature of this app: the detector, size samples, scheduled reports, and links on the core's pages."""

from __future__ import annotations

from durableagents.contrib.reports import detector, schedule
from durableagents.contrib.reports.metrics import read_metrics
from durableagents.contrib.reports.queries import storage
from ledger.web.navigation import SectionPage
from ledger.web.roles import READS_AUDIT
from runs.background import Duty
from runs.features import Feature

MAIL = "reports: mail"
PAGES = (
    SectionPage("audit", "Reports", "reports", frozenset(READS_AUDIT)),
    SectionPage("audit", "Insights", "insights"),
)


def feature() -> Feature:
    """Return the feature, with the schedule in the settings."""
    return Feature(
        name="reports",
        run_links=(("Report", "run_report"),),
        metrics=(read_metrics,),
        periodic=(
            Duty("reports: detector", detector.IS_DUE, detector.detect),
            Duty("reports: sizes", storage.SAMPLE_IS_DUE, storage.sample),
            Duty("reports: schedule", schedule.store_is_due(), schedule.store, then=(MAIL,)),
            Duty(MAIL, schedule.mail_is_due(), schedule.announce),
        ),
    )
