"""URLs of this app's pages and of their forms."""

from django.urls import path

from approvals.queues.views import moment
from durableagents.contrib.calendars import absences, deputies, services, views

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

urlpatterns = [
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
