"""URLs of this app's pages."""

from django.urls import path

from durableagents.contrib.documents import views

_DOCUMENT = "approvals/<uuid:approval_id>/documents/<int:n>"
urlpatterns = [
    path(_DOCUMENT, views.Original.as_view(), name="document"),
    path(f"{_DOCUMENT}/pages/<int:page>", views.Picture.as_view(), name="document_page"),
]
