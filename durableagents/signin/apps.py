"""django-allauth's apps without its middleware, its checks of unmounted pages, and its provider registry, which would
load every provider's libraries into every worker."""

from __future__ import annotations

from django.apps import AppConfig


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
