"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.halts import views

urlpatterns = [
    path("halts", views.HaltsPage.as_view(), name="halts"),
    path("halts/new", views.NewHalt.as_view(), name="new_halt"),
    path("halts/<uuid:halt>/stages", views.ChangeHalt.as_view(act="stage"), name="halt_stages"),
    path("halts/<uuid:halt>/liftings", views.ChangeHalt.as_view(act="lift"), name="halt_liftings"),
]
