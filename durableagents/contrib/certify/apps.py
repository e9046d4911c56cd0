"""Probes of tools and crash tests of agents. See README.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.apps import AppConfig


class CertifyConfig(AppConfig):
    name = "durableagents.contrib.certify"
    label = "certify"
    default_auto_field = "django.db.models.BigAutoField"
    # durableagents/grants.py reads these.
    append_only_tables = ("runs_probe",)

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.certify.certificates import CachedCertificates, read_certificates
        from runs.features import Certification, Feature, install

        certification = Certification(for_worker=CachedCertificates, read=read_certificates)
        install(Feature(name="certify", certification=certification, while_driving=(_recording_calls,)))


@contextmanager
def _recording_calls(count_commits: Callable[[], int]) -> Iterator[None]:
    """Record the calls that a crash test's worker sends."""
    from django.conf import settings

    from durableagents.contrib.certify import call_record

    if settings.DURABLEAGENTS.call_record is not None:
        call_record.install(settings.DURABLEAGENTS.call_record)
    yield
