"""The URL that Prometheus scrapes."""

from django.urls import path

from durableagents.contrib.metrics.views import Metrics

root_urls = [path("metrics", Metrics.as_view(), name="metrics")]
