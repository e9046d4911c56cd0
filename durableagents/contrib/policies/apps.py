"""Policies: administrators' rules that allow, deny or require approval of calls. See README.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    name = "durableagents.contrib.policies"
    label = "policies"
    default_auto_field = "django.db.models.BigAutoField"
    # Read by durableagents/grants.py. Only the end of a version and its code may change.
    frozen_columns: ClassVar[dict[str, set[str]]] = {
        "approvals_policy": {
            *("id", "name", "version", "agent", "tool", "condition", "kinds", "effect", "queue", "within_seconds"),
            *("proof", "rule", "set_by", "made_at"),
        }
    }
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.policies.urls"

    def sections(self) -> list[Any]:
        """Return this app's entry in the navigation (read by durableagents/apps.py)."""
        from ledger.web.navigation import Section

        return [
            Section(
                "policies",
                "Policies",
                "policies",
                permission="approvals.change_queue",
                is_rare=True,
                help="how-to/policies-and-standing-approvals",
            )
        ]

    def demo_settings(self, **by: Any) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the settings that the demo still lacks, by name (read by durableagents/demo/oversight.py)."""
        from durableagents.contrib.policies import demo

        yield from demo.settings(**by)

    def ready(self) -> None:
        """Install this app's feature, protect its rows, and let its acts require two people."""
        from durableagents.contrib.policies import in_force, queries, services, verify
        from durableagents.contrib.policies.models import Policy
        from ledger import change_control
        from ledger.protected import protect
        from runs import features

        change_control.declare_family("policies", "policies: which calls are allowed and who must approve them")
        protect(Policy, "policy", named_by="name")
        features.install(
            features.Feature(
                name="policies",
                policies=features.Policies(statement=in_force.STATEMENT, made_of=in_force.book_of),
                form_fields=services.FORM_FIELDS,
                queue_uses=(queries.use_of_queue,),
                run_checks=(verify.PolicyCheck,),
                record_checks=(verify.every_revision,),
            )
        )
