"""The feature of this app."""

from __future__ import annotations

from approvals.queues.labels import fields_of
from approvals.queues.listed import deputies_of
from durableagents.contrib.calendars import deputies as deputies  # registers acts that can need two people
from durableagents.contrib.calendars import due, queries, texts, versions
from durableagents.contrib.calendars.clock import DEADLINES
from durableagents.contrib.calendars.hours import DAYS
from durableagents.contrib.calendars.terms import QueueTiming
from runs.features import Feature, QueueTimings
from runs.models import Wait

_CALENDAR = (
    fields_of("k", name="Name", zone="Time zone", holidays="Holidays")
    | {day: (f"k-{day}", day.capitalize()) for day in DAYS}
    | {"week": ("k-mon", "Working hours")}
)
_FORM_FIELDS = {
    "QueueTimings": fields_of("t", calendar="Business calendar")
    | {
        "on_timeout": ("t-then", "If nobody decides"),
        "steps": ("t-to1", "Escalate to"),
        "at_once_if_away": ("t-away", "Escalate at once if everyone is away"),
        "remind": ("t-remind", "Remind after (% of the time)"),
        "every_hours": ("t-every", "First reminder after (hours)"),
        "clock_stops_hours": ("t-stops", "Pause for questions (max. hours)"),
    },
    "absence": fields_of("o", person="Person", deputy="Deputy")
    | {"starts_at": ("o-from", "From"), "ends_at": ("o-until", "Until")},
    "deputy": fields_of("d", principal="Person", deputy="Deputy", queue="Queue")
    | {"starts_at": ("d-from", "From"), "ends_at": ("d-until", "Until")},
    "add_calendar": _CALENDAR,
    "CalendarChanges": {name: field for name, field in _CALENDAR.items() if name != "name"},
    "CalendarRemovals": fields_of("x"),
}


def feature() -> Feature:
    """Return the feature."""
    return Feature(
        name="calendars",
        deadlines=DEADLINES,
        queue_timings=QueueTimings(statement=versions.STATEMENT, read=versions.read_timings, default=QueueTiming()),
        on_wait_due={Wait.Kind.APPROVAL: due.on_due},
        sweeps=(due.act_on_due,),
        queue_uses=(versions.uses_of,),
        queue_panels=(lambda queue: {"t": queries.timing_of(queue)},),
        queue_list_panels=(lambda person: {"absences": queries.absences_of(person), "deputies": deputies_of(person)},),
        queue_templates=("calendars/queue.html",),
        queue_list_templates=("calendars/queues.html",),
        queue_list_links=(("Business calendars", "calendars"),),
        form_fields=_FORM_FIELDS,
        change_labels=texts.CHANGE_LABELS,
        change_texts=texts.CHANGE_TEXTS,
    )
