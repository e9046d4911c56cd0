"""Runs on the real database, and mail that is sent."""

from tests.contrib.notifications.mail_server import postbox, room
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "postbox", "room", "stage", "tools"]
