"""Models of the two-person setting and of proposed changes.

The tables keep the names that they had before this became a separate app.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models

from ledger.clock import database_now
from ledger.models import Coded, Json, append_only

MAX_AGE = timedelta(days=14)  # how long a proposal stays applicable


class FourEyes(Coded):
    """The kinds of rules that only two people together can change.

    The newest row is in force. If there is no row, one person can change every kind.
    """

    n = models.BigIntegerField(primary_key=True)
    families = ArrayField(models.TextField())
    set_by = models.TextField()
    at = models.DateTimeField()

    class Meta:
        db_table = "ledger_foureyes"
        triggers = append_only()


class RuleChange(Coded):
    """A proposed change of rules: the act, its arguments, and its effect as of the time of the proposal."""

    class State(models.TextChoices):
        OPEN = "open"
        APPLIED = "applied"
        REFUSED = "refused"
        WITHDRAWN = "withdrawn"

    id = models.UUIDField(primary_key=True)
    family = models.TextField()
    act = models.TextField(help_text="The service, by the name of its function.")
    given = Json(help_text="Arguments of the service function.")
    told = Json(help_text="Records that the act would have written: action, subject, queue, before, after.")
    why = models.TextField()
    by = models.TextField()
    person = models.BigIntegerField()
    role = models.TextField(blank=True)
    auth = models.TextField(blank=True)
    address = models.TextField(blank=True)
    made_at = models.DateTimeField()
    state = models.TextField(choices=State.choices, default=State.OPEN)
    ended_by = models.TextField(blank=True, default="")
    ended_at = models.DateTimeField(null=True)
    ended_why = models.TextField(blank=True, default="")

    class Meta:
        db_table = "ledger_rulechange"
        indexes = [
            models.Index(fields=["-made_at"], name="ledger_rulechange_newest"),
            models.Index(fields=["-made_at"], condition=models.Q(state="open"), name="ledger_rulechange_open"),
        ]
        triggers = [
            pgtrigger.Protect(name="kept", operation=pgtrigger.Delete),
            pgtrigger.Protect(
                name="ends_once", operation=pgtrigger.Update, condition=pgtrigger.Condition("OLD.state <> 'open'")
            ),
        ]

    @property
    def title(self) -> str:
        """Return the title: the act and its subject. A forged row has a fixed title."""
        if not self.is_authentic:
            return "A row that is not authentic"
        last: dict[str, Any] = self.told[-1] if self.told else {"action": self.act, "subject": ""}
        action, subject = str(last["action"]).replace("_", " "), str(last["subject"])
        return subject if subject.startswith(f"{action} ") else f"{action}: {subject}"

    def is_late(self, now: datetime) -> bool:
        """Return whether the proposal is too old to apply."""
        return bool(self.state == self.State.OPEN and now - self.made_at >= MAX_AGE)

    @property
    def can_be_applied(self) -> bool:
        """Return whether a second person could apply the change now."""
        return self.state == self.State.OPEN and self.is_authentic and not self.is_late(database_now())

    def may_second(self, user: Any) -> bool:
        """Return whether the user's account may be the second person."""
        from ledger.change_control import acts, holds  # imported here because the module needs the models

        known = acts.get(self.act)
        return known is not None and user.pk != self.person and holds(user, known.needs)
