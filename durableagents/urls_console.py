"""Every page of the console."""

from django.urls import include, path

from durableagents import views
from durableagents.identity import views_account

urlpatterns = [
    path("", views.Overview.as_view(), name="overview"),
    path("login", views.SignIn.as_view(), name="login"),
    path("login/demo", views.DemoSignIn.as_view(), name="demo_login"),
    path("account/password", views_account.OwnPassword.as_view(), name="password"),
    path("logout", views.SignOut.as_view(), name="logout"),
    path("", include("runs.console.urls")),
    path("", include("approvals.urls")),
    path("", include("ledger.urls")),
]
