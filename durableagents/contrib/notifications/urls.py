"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.notifications import api, views

api_urls = [
    path("notifications/settings", api.Settings.as_view(), name="api-notice-settings"),
    path("notifications/test", api.Test.as_view(), name="api-notice-test"),
    path("notifications/deliveries", api.Deliveries.as_view(), name="api-deliveries"),
    path("notifications/deliveries/<int:delivery_id>/replay", api.Replay.as_view(), name="api-delivery-replay"),
    path("notifications/channels", api.Channels.as_view(), name="api-channels"),
    path("notifications/channels/<int:channel_id>", api.OneChannel.as_view(), name="api-channel"),
    path("notifications/channels/<int:channel_id>/end", api.ChannelEnd.as_view(), name="api-channel-end"),
    path("notifications/channels/<int:channel_id>/test", api.ChannelTest.as_view(), name="api-channel-test"),
]

console_urls = [
    path("notifications", views.Mine.as_view(), name="notifications"),
    path("notifications/settings", views.Settings.as_view(), name="notice_settings"),
    path("notifications/tests", views.Tests.as_view(), name="notice_tests"),
    path("notifications/browser", views.Browser.as_view(), name="notice_browser"),
    path("notifications/log", views.LogPage.as_view(), name="notice_log"),
    path("notifications/log/<int:delivery_id>/replays", views.Replays.as_view(), name="notice_replays"),
    path("notifications/channels", views.ChannelsPage.as_view(), name="channels"),
    path("notifications/channels/new", views.NewChannel.as_view(), name="new_channel"),
    path("notifications/channels/<int:channel_id>/changes", views.ChannelChanges.as_view(), name="channel_changes"),
    path("notifications/channels/<int:channel_id>/ends", views.ChannelEnds.as_view(), name="channel_ends"),
    path("notifications/channels/<int:channel_id>/tests", views.ChannelTests.as_view(), name="channel_tests"),
    path("account/devices", views.Devices.as_view(), name="account_devices"),
    path("account/devices/<int:device_id>/removals", views.DeviceRemovals.as_view(), name="account_device_removals"),
]
