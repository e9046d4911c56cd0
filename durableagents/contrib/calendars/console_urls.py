"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.calendars import views

urlpatterns = [
    path("queues/of/<str:queue>/timings", views.QueueTimings.as_view(), name="queue_timings"),
    path("queues/calendars", views.CalendarsPage.as_view(), name="calendars"),
    path("queues/calendars/new", views.AddingCalendar.as_view(), name="new_calendar"),
    path("queues/calendars/of/<str:calendar>", views.OneCalendarPage.as_view(), name="calendar"),
    path("queues/calendars/of/<str:calendar>/changes", views.CalendarChanges.as_view(), name="calendar_changes"),
    path("queues/calendars/of/<str:calendar>/removals", views.CalendarRemovals.as_view(), name="calendar_removals"),
    path("queues/absences", views.Leaving.as_view(), name="absences"),
    path("queues/absences/<int:absence_id>/endings", views.ComingBack.as_view(), name="absence_endings"),
    path("queues/deputies", views.Appointing.as_view(), name="deputies"),
    path("queues/deputies/<int:deputy_id>/revocations", views.Revoking.as_view(), name="deputy_revocations"),
]
