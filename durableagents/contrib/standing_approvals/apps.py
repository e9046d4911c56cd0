"""Standing approvals: decisions that also approve later identical calls. See README.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.apps import AppConfig


class StandingApprovalsConfig(AppConfig):
    name = "durableagents.contrib.standing_approvals"
    label = "standing_approvals"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py.
    append_only_tables = ("approvals_standinggrant", "approvals_standinguse", "approvals_standingend")
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.standing_approvals.urls"

    def demo_settings(self, **by: Any) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the settings that the demo still lacks, by name (read by durableagents/demo/oversight.py)."""
        from durableagents.contrib.standing_approvals import demo

        yield from demo.settings(**by)

    def ready(self) -> None:
        """Install this app's feature, and protect its rows."""
        from approvals.queues.labels import fields_of
        from durableagents.contrib.standing_approvals import answering, queries, services, verify
        from durableagents.contrib.standing_approvals.models import StandingEnd, StandingGrant
        from ledger.protected import protect
        from runs import features

        protect(StandingGrant, "standing approval", named_by="id")
        protect(StandingEnd, "end of standing approval", named_by="grant_id")
        features.install(
            features.Feature(
                name="standing_approvals",
                sweeps=(answering.answer_questions,),
                approve_again=services.approve_again,
                revoked_approvals=(verify.find_revoked,),
                approval_panels=(queries.approval_panels,),
                queue_panels=(queries.queue_panel,),
                queue_templates=("standing_approvals/limits.html",),
                queue_list_links=(("Standing approvals", "standing_grants"),),
                form_fields={"QueueGrants": fields_of("g", times="Max. calls", days="Max. days", sum="Max. total")},
                change_labels={"again": "standing approvals"},
                change_texts={"again": queries.bounds_text},
                run_checks=(verify.StandingApprovals,),
                run_tables={"approvals_standinggrant": "run_id", "approvals_standinguse": "run_id"},
            )
        )
