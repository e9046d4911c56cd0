"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from approvals.queues.views import moment
from durableagents.contrib.calendars import absences, api, deputies, services, views

api_urls = [
    path("queues/<str:queue>/timing", api.QueueTiming.as_view(), name="api-queue-timing"),
    path("calendars", api.Calendars.as_view(), name="api-calendars"),
    path("calendars/<str:calendar>", api.OneCalendar.as_view(), name="api-calendar"),
    path("calendars/<str:calendar>/remove", api.CalendarRemove.as_view(), name="api-calendar-remove"),
    path("absences", api.Absences.as_view(), name="api-absences"),
    path("absences/<int:absence_id>/end", api.AbsenceEnd.as_view(), name="api-absence-end"),
    path("deputies", api.Deputies.as_view(), name="api-deputies"),
    path("deputies/<int:deputy_id>/revoke", api.DeputyRevoke.as_view(), name="api-deputy-revoke"),
]

_REMOVE = views.CalendarAct.as_view(
    act="CalendarRemovals", service=services.remove_calendar, done="Calendar removed.", page="calendars"
)
_OWN, _TIMES = views.OwnAct.as_view, {"starts_at": moment, "ends_at": moment}
_AWAY = _OWN(
    act="absence", service=absences.record_absence, done="Absence saved.", body=services.AbsenceBody, reads=_TIMES
)
_BACK = _OWN(act="back", service=absences.end_absence, done="Absence and deputyship ended.")
_DEPUTY = _OWN(act="deputy", service=deputies.name_deputy, done="Deputy saved.", body=services.DeputyBody, reads=_TIMES)
_REVOKE = _OWN(act="revoke", service=deputies.end_deputyship, done="Deputyship ended.")

console_urls = [
    path("queues/of/<str:queue>/timings", views.QueueTimings.as_view(), name="queue_timings"),
    path("queues/calendars", views.CalendarsPage.as_view(), name="calendars"),
    path("queues/calendars/new", views.NewCalendar.as_view(), name="new_calendar"),
    path("queues/calendars/of/<str:calendar>", views.OneCalendarPage.as_view(), name="calendar"),
    path("queues/calendars/of/<str:calendar>/changes", views.CalendarChanges.as_view(), name="calendar_changes"),
    path("queues/calendars/of/<str:calendar>/removals", _REMOVE, name="calendar_removals"),
    path("queues/absences", _AWAY, name="absences"),
    path("queues/absences/<int:absence_id>/endings", _BACK, name="absence_endings"),
    path("queues/deputies", _DEPUTY, name="deputies"),
    path("queues/deputies/<int:deputy_id>/revocations", _REVOKE, name="deputy_revocations"),
]
