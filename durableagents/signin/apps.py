"""django-allauth's tables and parts, installed without what it would bring along: its middleware, its checks of pages
that aren't mounted, and the registry that loads every provider's libraries into every worker."""

from __future__ import annotations

from django.apps import AppConfig


class AccountParts(AppConfig):
    """Addresses of accounts: nothing of ours writes them, the parts below name them."""

    name = "allauth.account"
    default_auto_field = "django.db.models.AutoField"


class FactorParts(AppConfig):
    """Second factors."""

    name = "allauth.mfa"
    default_auto_field = "django.db.models.BigAutoField"


class ProviderParts(AppConfig):
    """Who is known where: accounts by issuer and subject."""

    name = "allauth.socialaccount"
    default_auto_field = "django.db.models.AutoField"
