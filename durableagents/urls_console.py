"""URLs of the console's pages."""

from django.urls import include, path

from durableagents import reference, views
from durableagents.urls_apps import of_apps

urlpatterns = [
    path("", views.Overview.as_view(), name="overview"),
    path("sw.js", views.ServiceWorker.as_view(), name="service_worker"),
    path("login", views.SignIn.as_view(), name="login"),
    path("login/demo", views.DemoSignIn.as_view(), name="demo_login"),
    path("logout", views.SignOut.as_view(), name="logout"),
    path("reference", reference.Reference.as_view(), name="api_reference"),
    path("", include("runs.console.urls")),
    path("", include("approvals.urls")),
    path("", include("ledger.urls")),
    *of_apps("console_urls"),
]
