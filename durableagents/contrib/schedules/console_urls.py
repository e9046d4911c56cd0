"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.schedules import views

urlpatterns = [
    path("schedules", views.SchedulesPage.as_view(), name="schedules"),
    path("schedules/new", views.NewSchedule.as_view(), name="new_schedule"),
    path("schedules/<uuid:schedule_id>/changes", views.ScheduleChanges.as_view(), name="schedule_changes"),
    path("schedules/<uuid:schedule_id>/pauses", views.SchedulePauses.as_view(), name="schedule_pauses"),
    path("schedules/<uuid:schedule_id>/resumptions", views.ScheduleResumptions.as_view(), name="schedule_resumptions"),
    path("schedules/<uuid:schedule_id>/deletions", views.ScheduleDeletions.as_view(), name="schedule_deletions"),
]
