"""The files in deploy/ and docs/reference/metrics.md name metrics that exist, and Prometheus accepts all of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from durableagents.contrib.metrics.catalogue import FAMILIES
from tests.conftest import free_ports
from tests.contrib.metrics.conftest import TOKEN, Scenario, Scraped, collect, scraped
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS, GRAFANA = ROOT / "deploy/prometheus", ROOT / "deploy/grafana/durableagents.json"
_NAME = re.compile(r"\bdurableagents_[a-z0-9_]+")
_SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


@pytest.fixture
def everything(client: Any, scenario: Scenario) -> Scraped:
    collect()
    return scraped(client)


@pytest.fixture(scope="session")
def promtool() -> str:
    return _program("promtool")


@pytest.fixture(scope="session")
def prometheus() -> str:
    return _program("prometheus")


def _program(name: str) -> str:
    """Return the path of a program. Without it the test is skipped, or fails under CI=true."""
    if found := shutil.which(name):
        return found
    message = f"no {name} on PATH: tests of metrics need one (Debian: apt-get install prometheus)"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message)
    pytest.skip(message)


def _names(text: str) -> set[str]:
    return {_SUFFIX.sub("", name) for name in _NAME.findall(text)}


@pytest.mark.django_db(transaction=True)
def test_dashboard_rules_and_docs_name_metrics_that_exist(everything: Scraped) -> None:
    known = {_SUFFIX.sub("", name) for name in everything.families}
    rules = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    used = _names(" ".join(rule["expr"] for group in rules["groups"] for rule in group["rules"]))
    names = _names(" ".join(_expressions(json.loads(GRAFANA.read_text()))))
    assert len(used) > 15 and len(names) > 30
    assert used | names <= known, sorted((used | names) - known)
    listed = (ROOT / "docs/reference/metrics.md").read_text()
    for family in everything.families.values():
        labels = FAMILIES[short].labels if (short := family.name.removeprefix("durableagents_")) in FAMILIES else None
        name = family.name + ("_total" if family.type == "counter" else "")
        line = next((each for each in listed.splitlines() if each.startswith(f"| `{name}` |")), "")
        assert f"| {family.type} |" in line and family.documentation in line, f"{name}: {line}"
        assert labels is None or f"| {', '.join(f'`{each}`' for each in labels)} |" in line, line
    assert _names(listed) <= known, sorted(_names(listed) - known)


def _expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_each_alert_names_a_section_of_the_runbook() -> None:
    rules = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/how-to/runbook.md").read_text(), re.M)
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    wrong = [
        alert["alert"]
        for alert in alerts
        if alert["annotations"]["runbook_url"].removeprefix("docs/how-to/runbook.md#") not in anchors
        or alert["labels"]["severity"] not in ("P1", "P2", "P3")
    ]
    assert len(alerts) > 15 and not wrong


@pytest.mark.django_db(transaction=True)
def test_promtool_accepts_rules_configuration_and_answer(everything: Scraped, promtool: str, tmp_path: Path) -> None:
    def run(*arguments: str, given: str = "") -> None:
        done = subprocess.run(
            [promtool, *arguments], input=given, cwd=PROMETHEUS, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run("check", "rules", "alerts.yml")
    run("test", "rules", "alerts_test.yml")
    run("check", "config", "--syntax-only", "prometheus.yml")
    run("check", "metrics", given=everything.text)
    panels = "\n".join(
        f"  - {{record: 'panel:{n}', expr: {json.dumps(expr)}}}"
        for n, expr in enumerate(_expressions(json.loads(GRAFANA.read_text())))
    )
    (tmp_path / "panels.yml").write_text(f"groups:\n- name: panels\n  rules:\n{panels}\n")
    run("check", "rules", str(tmp_path / "panels.yml"))


@pytest.mark.django_db(transaction=True)
def test_prometheus_scrapes_and_evaluates_all_rules(
    live_server: Any, scenario: Scenario, prometheus: str, tmp_path: Path, settings: Any
) -> None:
    collect()
    settings.ALLOWED_HOSTS = ["*"]
    given = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    job = given["scrape_configs"][0]
    (tmp_path / "token").write_text(TOKEN)
    job["authorization"]["credentials_file"] = str(tmp_path / "token")
    job["static_configs"][0]["targets"] = [live_server.url.removeprefix("http://")]
    job["scrape_interval"] = job["scrape_timeout"] = "1s"
    given["global"] = {"evaluation_interval": "1s"}
    given["rule_files"] = [str(PROMETHEUS / "alerts.yml")]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(given))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [prometheus, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)

    def ask(path: str) -> Any:
        try:
            with urlopen(f"http://{address}/api/v1/{path}", timeout=5) as answer:
                return json.load(answer)["data"]
        except (OSError, KeyError):
            return None

    def alerts() -> set[str]:
        return {each["labels"]["alertname"] for each in (ask("alerts") or {"alerts": []})["alerts"]}

    try:
        eventually(lambda: "DurableAgentsNoWorkers" in alerts(), "an alert on the missing workers", seconds=40)
        (target,) = ask("targets")["activeTargets"]
        assert target["health"] == "up", target["lastError"]
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        assert rules and [rule for rule in rules if rule["health"] == "err"] == []
        query = "query?query=durableagents_effects_total%7Btool%3D%22order%22%7D"
        (found,) = eventually(lambda: (ask(query) or {}).get("result"), "the effects of a tool")
        assert float(found["value"][1]) > 0
    finally:
        server.terminate()
        server.wait(10)
