"""Claims, inquiries and delegations of approvals. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class CaseworkConfig(AppConfig):
    name = "durableagents.contrib.casework"
    label = "casework"
    # durableagents/grants.py reads these.
    frozen_columns = {"approvals_claim": {"id", "approval_id", "person", "by", "role", "at"}}
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.casework.urls"

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.casework import queries, talk
        from runs import features

        features.install(
            features.Feature(
                name="casework",
                approval_annotations=(queries.claim_annotations, talk.talk_annotations),
                approval_panels=(queries.approval_panels, talk.talk_panels),
                approval_lines=(queries.approval_lines,),
                approval_fields=(queries.approval_fields, talk.talk_fields),
                approval_filters=queries.FILTERS,
                open_items=(talk.open_for,),
            )
        )
