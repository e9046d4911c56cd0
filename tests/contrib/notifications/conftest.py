"""Runs on the real database, a mail server, and a chat."""

from __future__ import annotations

from tests.contrib.notifications.mail_server import postbox, room
from tests.integration.approvals.conftest import fiona
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "fiona", "outside", "postbox", "room", "stage", "tools"]
