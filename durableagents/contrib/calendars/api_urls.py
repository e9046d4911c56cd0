"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.calendars import api

urlpatterns = [
    path("queues/<str:queue>/timing", api.QueueTiming.as_view(), name="api-queue-timing"),
    path("calendars", api.Calendars.as_view(), name="api-calendars"),
    path("calendars/<str:calendar>", api.OneCalendar.as_view(), name="api-calendar"),
    path("calendars/<str:calendar>/remove", api.CalendarRemove.as_view(), name="api-calendar-remove"),
    path("absences", api.Absences.as_view(), name="api-absences"),
    path("absences/<int:absence_id>/end", api.AbsenceEnd.as_view(), name="api-absence-end"),
    path("deputies", api.Deputies.as_view(), name="api-deputies"),
    path("deputies/<int:deputy_id>/revoke", api.DeputyRevoke.as_view(), name="api-deputy-revoke"),
]
