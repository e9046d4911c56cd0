"""Ways to sign in beyond a password, and pages about accounts. See README.md. django-allauth's apps come without its
middleware, its checks of unmounted pages, and its registry of providers, which would load every provider's libraries
into every worker."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "durableagents.contrib.accounts"
    label = "accounts"
    default = True
    # Read by durableagents/grants.py. Providers come from the environment only.
    read_only_tables = ("socialaccount_socialapp",)
    frozen_columns: ClassVar[dict[str, set[str]]] = {
        "durableagents_invitation": set(
            "id username email roles is_admin token_hash made_by maker made_at expires_at".split()
        )
    }
    # Read by durableagents/urls_console.py.
    console_urls = "durableagents.contrib.accounts.urls"

    @property
    def root_urls(self) -> list[Any]:
        """Return what goes before the administration's own addresses (read by durableagents/urls.py): the one page that
        changes a password, with second factor and throttling."""
        from django.urls import path
        from django.views.generic import RedirectView

        return [path("admin/password_change/", RedirectView.as_view(pattern_name="password"))]

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.accounts import protected, signed_in  # noqa: F401
        from durableagents.contrib.accounts.own_features import PAGES, feature
        from ledger.verification.accounts import held_now
        from ledger.web import navigation
        from runs import features

        held_now["second factor"] = "SELECT user_id, type FROM mfa_authenticator"
        navigation.add_pages(*PAGES)
        features.install(feature())


class AccountParts(AppConfig):
    """E-mail addresses of accounts: unused by us, but the apps below refer to them."""

    name = "allauth.account"
    default_auto_field = "django.db.models.AutoField"


class FactorParts(AppConfig):
    name = "allauth.mfa"
    default_auto_field = "django.db.models.BigAutoField"


class ProviderParts(AppConfig):
    """Accounts at providers, by issuer and subject."""

    name = "allauth.socialaccount"
    default_auto_field = "django.db.models.AutoField"
