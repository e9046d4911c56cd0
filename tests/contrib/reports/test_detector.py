"""The detector gives the same findings however often, late and in whichever order it reads, and people close them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from durableagents import ReplayClass
from durableagents.contrib.certify.models import Probe
from durableagents.contrib.reports import detector, findings
from durableagents.contrib.reports.findings import ClosureBody, FindingBody, FindingClosed
from durableagents.contrib.reports.models import Closure, DetectorPlace, Finding, PendingCheck
from ledger import codec
from ledger.append import append
from ledger.codec import KeyMissing
from ledger.entries import Entry
from ledger.errors import JustificationRequired, NotFound
from ledger.models import ActRecord
from runs.engine.agents import registry
from runs.engine.driver import Driver
from runs.services.late_results import lost_worker, record_late_result
from tests.contrib.reports.conftest import Scenario, figures, make
from tests.integration.runs.conftest import _django_db_marker
from tests.integration.runs.stage import Stage, calling, in_thread, now
from tests.integration.runs.test_late import comes_back
from tests.tampering import tamper
from tests.world import OLGA, SHOP, Toolbox

__all__ = ["_django_db_marker"]

pytestmark = pytest.mark.django_db


def keys() -> list[str]:
    return sorted(Finding.objects.values_list("key", flat=True))


def test_again_late_and_in_small_batches_it_finds_the_same(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_thread(detector.detect) == 3 and in_thread(detector.detect) == 0
    known = keys()
    assert len(known) == 3
    DetectorPlace.objects.all().delete()  # its place is lost: it reads all again
    assert in_thread(detector.detect) == 0 and keys() == known
    for name, overlap in (("short", timedelta(0)), ("long", timedelta(days=1))):
        tamper("DELETE FROM reports_finding")
        DetectorPlace.objects.all().delete()
        for limit in ("EVENTS_BATCH", "ENTRIES_BATCH"):
            monkeypatch.setattr(detector, limit, 1)
        for limit in ("EVENTS_OVERLAP", "ENTRIES_OVERLAP"):
            monkeypatch.setattr(detector, limit, overlap)
        monkeypatch.setattr(detector, "PASS_SECONDS", 0.0)  # one batch a pass, as if each had been cut off
        for _ in range(200 if name == "short" else 1):
            in_thread(detector.detect)
        monkeypatch.setattr(detector, "PASS_SECONDS", 20.0)
        in_thread(detector.detect)
        assert keys() == known, name
        assert DetectorPlace.objects.get().is_behind is False


def test_equal_answers_to_a_repeated_call_are_no_finding(stage: Stage, tools: Toolbox) -> None:
    """No external id shows that both answers are about one effect."""
    tools.post = tools._plain("post", ReplayClass.IDEMPOTENT_WITH_KEY)  # type: ignore[attr-defined]
    run = stage.start(calling(tools, "post"))
    worker = comes_back(stage, run, "post")
    (late,) = stage.late
    claimed = stage.take(run)
    driver = Driver(
        registry.find(run.graph_id), claimed, stage.runtime, stage.control, trace_id=run.trace_id, generation=0
    )
    assert stage.wait(driver.drive()) == "completed"
    record_late_result(late, lost_worker(worker.id))
    assert in_thread(detector.detect) == 0 and not Finding.objects.exists()


def test_an_answer_that_comes_before_the_repeats_own_is_compared_later(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calling(tools, "order"))
    worker = comes_back(stage, run, "order")
    (late,) = stage.late
    claimed = stage.take(run)  # the next worker has it, and has not sent the call again yet
    assert (
        record_late_result(replace(late, result={"ref": "order:other", "amount": 1}), lost_worker(worker.id)) is False
    )
    assert in_thread(detector.detect) == 0 and PendingCheck.objects.count() == 1
    driver = Driver(
        registry.find(run.graph_id), claimed, stage.runtime, stage.control, trace_id=run.trace_id, generation=0
    )
    assert stage.wait(driver.drive()) == "completed"
    assert in_thread(detector.detect) == 1 and PendingCheck.objects.count() == 0
    assert Finding.objects.get().kind == Finding.Kind.DIFFERENT_ANSWER
    assert in_thread(detector.detect) == 0


def test_two_ids_and_probes_are_found(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(calling(tools, "order"))
    assert stage.drive() == "completed"
    entry = Entry("9.1/1", 0, "committed", "order", "idempotent_with_key", key="k", external_id="PO-1")
    append(run.id, by=SHOP, entries=[entry])
    assert in_thread(detector.detect) == 0
    append(run.id, by=SHOP, entries=[replace(entry, external_id="PO-2")])
    probe: dict[str, Any] = {"agent": "a", "version": "1", "made_of": "x", "told": "…", "evidence": {}, "by": "os:root"}
    probe |= {"evidence_digest": "", "host": "h", "at": now(), "expires_at": now() + timedelta(days=1)}
    for tool, verdict in (("pay", "ignores_keys"), ("pay", "ignores_keys"), ("look", "honours_keys")):
        row = Probe(tool=tool, verdict=verdict, **probe)
        row.seal()
        row.save()
    assert in_thread(detector.detect) == 2 and in_thread(detector.detect) == 0
    ids, probed = Finding.objects.order_by("kind").reverse()
    assert "PO-1" in ids.what and "PO-2" in ids.what and ids.run_id == run.id
    assert (probed.kind, probed.tool) == ("probe", "pay")


def test_a_run_whose_content_is_gone_hides_only_the_comparison(scenario: Scenario) -> None:
    """All payloads are damaged, as they are once a run's key is destroyed."""
    tamper("UPDATE ledger_event SET sealed = '\\x02' WHERE sealed IS NOT NULL")
    assert in_thread(detector.detect) == 1
    assert Finding.objects.get().kind == Finding.Kind.CONTRADICTION
    for run in scenario.runs.values():
        make("run-audit-trail", run=str(run.id))
    for name in ("recoveries", "idempotency-violations", "approvals", "overrides", "outcomes", "storage"):
        make(name)


class Away:
    """A cipher whose keys are away."""

    def encrypt(self, run_id: UUID, packed: bytes, header: bytes) -> bytes | None:
        return None

    def decrypt(self, run_id: UUID, encrypted: bytes, header: bytes) -> bytes:
        raise KeyMissing("the master key is away")

    def decrypt_head(self, run_id: UUID, encrypted: bytes) -> bytes:
        raise KeyMissing("the master key is away")


def test_content_that_is_away_is_examined_once_it_is_back(scenario: Scenario) -> None:
    cipher = codec._cipher
    codec.use_cipher(Away())
    try:
        assert in_thread(detector.detect) == 0 and PendingCheck.objects.count() == 4
    finally:
        codec.use_cipher(cipher)
    assert in_thread(detector.detect) == 3 and PendingCheck.objects.count() == 0


def test_people_report_and_close_once_on_record(scenario: Scenario) -> None:
    in_thread(detector.detect)
    run_id = scenario.runs["plain"].id
    with pytest.raises(NotFound):
        findings.report(FindingBody(run_id=uuid4(), justification="the supplier sent two"), by=OLGA)
    for text in ("", " . "):
        with pytest.raises(JustificationRequired):
            findings.report(FindingBody(run_id=run_id, justification=text), by=OLGA)
    found = findings.report(FindingBody(run_id=run_id, tool="order", justification="the supplier sent two"), by=OLGA)
    before = figures(make("idempotency-violations"))
    assert (before["open"], before["confirmed_percent"]) == (4, 0)
    body = ClosureBody(verdict="duplicate", justification="the supplier ignores keys")
    findings.close(found.pk, body, by=OLGA)
    with pytest.raises(FindingClosed, match="closed by user:olga"):
        findings.close(found.pk, ClosureBody(verdict="no_duplicate", justification="no, it is fine"), by=OLGA)
    with pytest.raises(NotFound):
        findings.close(10**9, body, by=OLGA)
    other = Finding.objects.exclude(pk=found.pk)[0]
    findings.close(other.pk, ClosureBody(verdict="no_duplicate", justification="a test of ours"), by=OLGA)
    result = figures(make("idempotency-violations"))
    assert (result["open"], result["duplicate"], result["no_duplicate"]) == (2, 1, 1)
    assert result["confirmed_percent"] == 25 and result["rate_percent"] == 75
    acts = ActRecord.objects.filter(action__startswith="finding_").order_by("id")
    assert [(act.action, act.subject) for act in acts] == [
        ("finding_report", f"finding {found.pk}"),
        ("finding_close", f"finding {found.pk}"),
        ("finding_close", f"finding {other.pk}"),
    ]
    assert Closure.objects.count() == 2
