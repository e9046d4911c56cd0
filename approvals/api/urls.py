from django.urls import path

from approvals.api import audit, queues, timing, views

urlpatterns = [
    path("audit", audit.Audit.as_view(), name="api-audit"),
    path("queues", queues.Queues.as_view(), name="api-queues"),
    path("queues/<str:queue>", queues.OneQueue.as_view(), name="api-queue"),
    path("queues/<str:queue>/close", queues.QueueClose.as_view(), name="api-queue-close"),
    path("queues/<str:queue>/open", queues.QueueOpen.as_view(), name="api-queue-open"),
    path("queues/<str:queue>/remove", queues.QueueRemove.as_view(), name="api-queue-remove"),
    path("queues/<str:queue>/limit", queues.QueueLimit.as_view(), name="api-queue-limit"),
    path("queues/<str:queue>/lift", queues.QueueLift.as_view(), name="api-queue-lift"),
    path("queues/<str:queue>/timing", timing.QueueTiming.as_view(), name="api-queue-timing"),
    path("calendars", timing.Calendars.as_view(), name="api-calendars"),
    path("calendars/<str:calendar>", timing.OneCalendar.as_view(), name="api-calendar"),
    path("calendars/<str:calendar>/remove", timing.CalendarRemove.as_view(), name="api-calendar-remove"),
    path("absences", timing.Absences.as_view(), name="api-absences"),
    path("absences/<int:absence_id>/end", timing.AbsenceEnd.as_view(), name="api-absence-end"),
    path("deputies", queues.Deputies.as_view(), name="api-deputies"),
    path("deputies/<int:deputy_id>/revoke", queues.DeputyRevoke.as_view(), name="api-deputy-revoke"),
    path("approvals", views.Approvals.as_view(), name="api-approvals"),
    path("approvals/<uuid:approval_id>", views.OneApproval.as_view(), name="api-approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decide.as_view(), name="api-approval-decision"),
]
