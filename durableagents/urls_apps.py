"""URLs that apps add: an AppConfig names their module, or lists them, in `api_urls`, `console_urls` or
`root_urls`."""

from django.apps import apps
from django.urls import URLResolver, include, path


def of_apps(attribute: str) -> list[URLResolver]:
    """Return the URLs of all installed apps that have this attribute."""
    modules = (getattr(config, attribute, None) for config in apps.get_app_configs())
    return [path("", include(module)) for module in modules if module is not None]
