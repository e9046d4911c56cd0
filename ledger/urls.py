"""The ledger's addresses."""

from django.urls import path

from ledger import views

urlpatterns = [
    path("runs/<uuid:run_id>/verification", views.VerificationPage.as_view(), name="verification"),
    path("audit/verification", views.VerifyAllPage.as_view(), name="verify_all"),
]
