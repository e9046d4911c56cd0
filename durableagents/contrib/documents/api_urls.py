"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.documents import api

_DOCUMENT = "approvals/<uuid:approval_id>/documents/<int:n>"
urlpatterns = [
    path(_DOCUMENT, api.Original.as_view(), name="api-document"),
    path(f"{_DOCUMENT}/pages", api.Pages.as_view(), name="api-document-pages"),
    path(f"{_DOCUMENT}/pages/<int:page>", api.Picture.as_view(), name="api-document-page"),
]
