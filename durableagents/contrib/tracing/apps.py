"""Export of runs as OpenTelemetry traces. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class TracingConfig(AppConfig):
    name = "durableagents.contrib.tracing"
    label = "tracing"

    def ready(self) -> None:
        """Install this app's feature, if there is a collector to send to. Nothing is imported otherwise."""
        from django.conf import settings

        known = settings.DURABLEAGENTS
        has_collector = known.otlp_endpoint or known.otel_endpoint or known.otel_traces_endpoint
        if known.is_otel_disabled or not has_collector:
            return
        from durableagents.contrib.tracing.own_features import feature
        from runs import features

        features.install(feature())
