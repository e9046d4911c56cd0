"""Ways to sign in beyond a password, and pages about accounts. See README.md.

django-allauth's apps are used without its middleware, without its checks of pages that aren't mounted, and without its
registry of providers, which would load every provider's libraries into every worker.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "durableagents.contrib.accounts"
    label = "accounts"
    default = True
    # durableagents/grants.py reads these. Providers come from the environment only.
    read_only_tables = ("socialaccount_socialapp",)
    frozen_columns: ClassVar[dict[str, set[str]]] = {
        "durableagents_invitation": set(
            "id username email roles is_admin token_hash made_by maker made_at expires_at".split()
        )
    }
    # durableagents/urls_console.py reads these.
    console_urls = "durableagents.contrib.accounts.urls"

    @property
    def root_urls(self) -> list[Any]:
        """Return URLs that precede the administration's own (read by durableagents/urls.py).

        They replace its page for changing the password with one that has a second factor and throttling.
        """
        from django.urls import path
        from django.views.generic import RedirectView

        return [path("admin/password_change/", RedirectView.as_view(pattern_name="password"))]

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.accounts import protected, signed_in  # noqa: F401
        from durableagents.contrib.accounts.own_features import PAGES, feature
        from ledger.verification.accounts import held_now
        from ledger.web import navigation
        from runs import features

        held_now["second factor"] = "SELECT user_id, type FROM mfa_authenticator"
        navigation.add_pages(*PAGES)
        features.install(feature())


class AccountParts(AppConfig):
    """E-mail addresses of accounts. They are unused, but the apps below refer to them."""

    name = "allauth.account"
    default_auto_field = "django.db.models.AutoField"


class FactorParts(AppConfig):
    name = "allauth.mfa"
    default_auto_field = "django.db.models.BigAutoField"


class ProviderParts(AppConfig):
    """Accounts at providers, by issuer and subject."""

    name = "allauth.socialaccount"
    default_auto_field = "django.db.models.AutoField"
