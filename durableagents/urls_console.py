"""Every page of the console."""

from django.urls import include, path

from durableagents import views

urlpatterns = [
    path("", views.Overview.as_view(), name="overview"),
    path("login", views.SignIn.as_view(), name="login"),
    path("login/demo", views.DemoSignIn.as_view(), name="demo_login"),
    path("logout", views.SignOut.as_view(), name="logout"),
    path("", include("runs.urls")),
    path("", include("approvals.urls")),
    path("", include("ledger.urls")),
]
