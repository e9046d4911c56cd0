"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.notifications import api

urlpatterns = [
    path("notifications/settings", api.Settings.as_view(), name="api-notice-settings"),
    path("notifications/test", api.Test.as_view(), name="api-notice-test"),
    path("notifications/deliveries", api.Deliveries.as_view(), name="api-deliveries"),
    path("notifications/deliveries/<int:delivery_id>/replay", api.Replay.as_view(), name="api-delivery-replay"),
    path("notifications/channels", api.Channels.as_view(), name="api-channels"),
    path("notifications/channels/<int:channel_id>", api.OneChannel.as_view(), name="api-channel"),
    path("notifications/channels/<int:channel_id>/end", api.ChannelEnd.as_view(), name="api-channel-end"),
    path("notifications/channels/<int:channel_id>/test", api.ChannelTest.as_view(), name="api-channel-test"),
]
