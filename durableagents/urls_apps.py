"""URLs that apps add.

An AppConfig lists its URLs, or names their module, in `api_urls`, `console_urls` or `root_urls`.
"""

from django.apps import apps
from django.urls import URLResolver, include, path


def of_apps(attribute: str) -> list[URLResolver]:
    """Return the URLs of all installed apps whose config has this attribute."""
    modules = (getattr(config, attribute, None) for config in apps.get_app_configs())
    return [path("", include(module)) for module in modules if module is not None]
