"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.standing_approvals import views

urlpatterns = [
    path("queues/of/<str:queue>/grants", views.QueueGrants.as_view(), name="queue_grants"),
    path("queues/grants", views.GrantsPage.as_view(), name="standing_grants"),
    path("queues/grants/<int:grant_id>", views.OneGrantPage.as_view(), name="standing_grant"),
    path("queues/grants/<int:grant_id>/ends", views.GrantEnds.as_view(), name="standing_grant_ends"),
]
