"""URLs that apps add: the module in `urls` of an AppConfig has lists `api_urls`, `console_urls` and `root_urls`."""

from importlib import import_module

from django.apps import apps
from django.urls import URLPattern, URLResolver


def of_apps(name: str) -> list[URLPattern | URLResolver]:
    """Return the URLs in the list `name` of each installed app whose config names a module in `urls`."""
    modules = (import_module(config.urls) for config in apps.get_app_configs() if hasattr(config, "urls"))
    return [address for module in modules for address in getattr(module, name, ())]
