"""What is dangerous in the settings: the message is the problem, the hint is the fix."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags, Warning, register


@register(Tags.security, deploy=True)
def proxies_are_known(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Who may say for whom a request comes."""
    environment = settings.DURABLEAGENTS
    if not environment.is_production:
        return []
    networks = environment.proxy_networks
    if not networks:
        return [
            Warning(
                "No proxy is trusted: every plain request is redirected to https, also those that your proxy forwards.",
                hint="Set DURABLEAGENTS_TRUSTED_PROXIES to the addresses of the proxy that ends TLS.",
                id="durableagents.W001",
            )
        ]
    if any(network.prefixlen == 0 for network in networks):
        return [
            Warning(
                "Every address is a trusted proxy: anybody can write any address into the records.",
                hint="Set DURABLEAGENTS_TRUSTED_PROXIES to the addresses of your proxies.",
                id="durableagents.W002",
            )
        ]
    return []
