"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.notifications import channels
from durableagents.contrib.notifications.channels import ChannelBody
from ledger.actors import Actor
from tests.roles import ADMINS, EVERY, OPERATE, SUPERUSER

API = [
    ("GET", EVERY | {SUPERUSER}, "api-notice-settings api-deliveries"),
    ("POST", ADMINS, "api-channels api-channel api-channel-end api-channel-test"),
    ("POST", EVERY | {SUPERUSER}, "api-notice-settings api-notice-test"),
    ("GET", OPERATE | {"auditor", SUPERUSER}, "api-channels api-channel"),
    ("POST", OPERATE | {SUPERUSER}, "api-delivery-replay"),
]
READ = [
    (EVERY, "notifications"),
    ({"operator", "auditor"}, "notice_log channels"),
]
ACT = [
    (EVERY, "account_devices account_device_removals notice_settings notice_tests notice_browser"),
    ({"operator"}, "notice_replays"),
    (set(), "new_channel channel_changes channel_ends channel_tests"),
]


def sample_channel() -> list[Any]:
    room = ChannelBody(name="room", form="mailbox", address="a@b.example", kinds=["failed"], justification="ok")
    return [channels.add(room, by=Actor("os", "root", auth="shell")).pk]


SAMPLES = {"channel_id": sample_channel}
