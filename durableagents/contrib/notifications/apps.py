"""Notifications: mail, chats, push messages and digests. See README.md."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "durableagents.contrib.notifications"
    label = "notifications"
    # Read by durableagents/grants.py.
    frozen_columns: ClassVar[dict[str, set[str]]] = {
        "approvals_channel": {"id", "queue_id", "form", "name", "made_at"},
        "approvals_device": set("id person name service address digest key token_hash made_at code".split()),
    }
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.notifications.urls"

    def ready(self) -> None:
        """Install this app's feature, and the link in the account menu."""
        from durableagents.contrib.notifications import addressing, delivering, devices, kinds
        from durableagents.contrib.notifications.models import Channel, Device
        from durableagents.contrib.notifications.queries import read_metrics
        from ledger.protected import protect
        from ledger.web.navigation import SectionPage, add_pages
        from runs import features
        from runs.background import Duty

        protect(Channel, "channel", named_by="name")
        protect(Device, "device", named_by="id")
        add_pages(SectionPage("account", "Notifications", "notifications", frozenset()))
        senders = [
            Duty(f"notifications: {name}", delivering.is_due(by), partial(delivering.deliver, by))
            for name, by in delivering.SENDERS.items()
        ]
        features.install(
            features.Feature(
                name="notifications",
                notifiers=(kinds.tell,),
                on_change_proposed=(kinds.tell_of_change,),
                on_versions_missing=(kinds.tell_of_missing_versions,),
                on_sessions_ended=(devices.end_of_sessions,),
                account_panels=(devices.panel,),
                metrics=(read_metrics,),
                periodic=(
                    Duty(
                        "notifications: recipients",
                        addressing.IS_DUE,
                        addressing.address_all,
                        then=tuple(each.name for each in senders),
                    ),
                    *senders,
                    Duty("notifications: forgetting", addressing.IS_OLD, addressing.delete_old),
                ),
            )
        )

    def make_keys(self) -> None:
        """Create the key for push messages unless one is configured (called by durableagents/dev/launcher.py)."""
        from django.conf import settings

        from durableagents.contrib.notifications import web_push

        if settings.DURABLEAGENTS.push_key is None:
            web_push.create_key()
