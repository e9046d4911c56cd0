"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.documents import api, views

_DOCUMENT = "approvals/<uuid:approval_id>/documents/<int:n>"
api_urls = [
    path(_DOCUMENT, api.Original.as_view(), name="api-document"),
    path(f"{_DOCUMENT}/pages", api.Pages.as_view(), name="api-document-pages"),
    path(f"{_DOCUMENT}/pages/<int:page>", api.Picture.as_view(), name="api-document-page"),
]

console_urls = [
    path(_DOCUMENT, views.Original.as_view(), name="document"),
    path(f"{_DOCUMENT}/pages/<int:page>", views.Picture.as_view(), name="document_page"),
]
