"""Models of calendars, queue timings and absences.

Calendars and timings are append-only versions; an approval keeps the version that was current when it was requested.
Each row has a code, so forged rows can't move a deadline.
"""

from __future__ import annotations

from django.db import models

from approvals.queue_models import Deputy, Queue, ends_once
from ledger.models import Coded, Json, append_only


class Calendar(Coded):
    """One version of a business calendar.

    `week` has the shifts of each day, Monday first, in minutes after local midnight. `holidays` are pairs of day and
    name. `is_removed` marks the last version of a removed calendar.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    version = models.IntegerField()
    zone = models.TextField(help_text="IANA name of the time zone.")
    week = Json()
    holidays = Json(default=list)
    is_removed = models.BooleanField(default=False)
    set_by = models.TextField()
    set_at = models.DateTimeField()

    class Meta:
        db_table = "approvals_calendar"
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="approvals_calendar_once")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Timing(Coded):
    """One version of a queue's timing: its calendar, reminders, and what happens to unanswered questions.

    `steps` are pairs of queue and minutes. `remind` has percentages of the time. `every` is in minutes; 0 means the
    time set by the gate.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="timings")
    version = models.IntegerField()
    calendar = models.TextField(blank=True, help_text="Empty: around the clock.")
    on_timeout = models.TextField(blank=True, help_text="Empty: as the gate specifies, or else reject.")
    steps = Json(default=list)
    remind = Json(default=list)
    every = models.IntegerField(default=0)
    at_once_if_away = models.BooleanField(default=False)
    clock_stops = models.IntegerField(
        default=0, db_default=0, help_text="Longest pause of the deadline in minutes, while an inquiry is open."
    )
    set_by = models.TextField()
    set_at = models.DateTimeField()

    class Meta:
        db_table = "approvals_timing"
        constraints = [models.UniqueConstraint(fields=["queue", "version"], name="approvals_timing_once")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.queue_id} {self.version}"


class Absence(Coded):
    """A person's absence.

    The stand-in, if any, is a deputy. If the deputy was named with the absence, the deputyship ends with it.
    """

    id = models.BigAutoField(primary_key=True)
    person = models.BigIntegerField(help_text="The account.")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.TextField()
    deputy = models.ForeignKey(Deputy, null=True, on_delete=models.PROTECT, related_name="absences")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.TextField(blank=True, default="")

    class Meta:
        db_table = "approvals_absence"
        constraints = [
            # An ended absence can't be inserted again with its old code.
            models.UniqueConstraint(fields=["person", "made_at"], name="approvals_absence_once")
        ]
        indexes = [
            models.Index(
                fields=["person", "ends_at"], condition=models.Q(ended_at__isnull=True), name="approvals_absence_of"
            )
        ]
        triggers = [ends_once("ended_at")]

    def __str__(self) -> str:
        return f"{self.person} until {self.ends_at}"
