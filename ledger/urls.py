"""URLs of the ledger's pages."""

from django.urls import path

from ledger.verification import pages

urlpatterns = [
    path("runs/<uuid:run_id>/verification", pages.VerificationPage.as_view(), name="verification"),
    path("audit/verification", pages.VerifyAllPage.as_view(), name="verify_all"),
]
