"""`python -m tests.system.browser.pictures [vendor|mail|review|people …]`: take the pictures of the README and of docs/
in a real Chromium, on an installation started for them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect, sync_playwright

from tests.system.browser.conftest import FLAGS
from tests.system.browser.looks import picture, signed_in
from tests.system.browser.pictures_people import take_people
from tests.system.browser.site import Site
from tests.system.browser.steps import read_all
from tests.waiting import eventually

NORDLICHT = {
    "legal_name": "Nordlicht Antriebe GmbH",
    "country": "DE",
    "tax_id": "DE811907980",
    "contact_email": "vendors@nordlicht.example",
    "category": "Warehouse automation",
    "first_order": {"description": "Dock sensors, lot 7", "amount_usd": "84000.00"},
    "requested_by": "ops@harbor",
}

ACME = {
    "legal_name": "Acme Pallets Ltd",
    "country": "GB",
    "tax_id": "GB123456789",
    "contact_email": "hello@acme-pallets.example",
    "category": "Pallets",
}
QUESTION = "How do transactions and locks behave when a database connection is lost?"


def main(names: list[str]) -> int:
    wanted = names or [*TAKEN]
    if unknown := {*wanted} - {*TAKEN}:
        print(f"pictures: {', '.join(sorted(unknown))}: none of {', '.join(TAKEN)}", file=sys.stderr)  # noqa: T201
        return 2
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("pictures: no Chromium on PATH (Debian: apt-get install chromium)", file=sys.stderr)  # noqa: T201
        return 2
    site = Site(Path(tempfile.mkdtemp(prefix="pictures-")) / "data")
    try:
        site.up()
        eventually(site.is_ready, "ready")
        site.remember()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for name in wanted:
                TAKEN[name](site, browser)
            browser.close()
        site.stop()
    finally:
        site.clean()
    return 0


def take(site: Site, browser: Browser) -> None:
    run_id = site.start("vendor-onboard", NORDLICHT)
    site.reaches(run_id, "waiting_human")
    operator = signed_in(site, browser, "operator")
    operator.goto(f"/runs/{run_id}")
    picture(operator, "run-waiting")

    finance = signed_in(site, browser, "approver_finance")
    finance.goto(f"/inbox/{site.question(run_id)['id']}")
    read_all(finance)
    finance.evaluate("scrollTo(0, 0)")
    picture(finance, "inbox-decision")

    slow = {"system": "erp", "operation": "file_purchase_order"}
    fault(site, {**slow, "latency_ms": 2500})
    finance.fill("#justification", "Budget line 7 covers it.")
    finance.click("[data-verdict=approve]")
    os.kill(eventually(lambda: busy_worker(site), "a worker that sends the order"), signal.SIGKILL)
    site.reaches(run_id, "completed")
    fault(site, slow)
    operator.reload()
    expect(operator.locator("h1 ~ .chip")).to_have_text("completed")
    picture(operator, "run-after-kill")


def take_mail(site: Site, browser: Browser) -> None:
    run_id = site.start("mail-before-gate", ACME)
    site.reaches(run_id, "waiting_human")
    operator = signed_in(site, browser, "operator")
    operator.goto(f"/runs/{run_id}")
    picture(operator, "mail-before-gate")


def take_review(site: Site, browser: Browser) -> None:
    run_id = site.start("literature-review", {"topic": QUESTION, "documents": 12, "at_once": 4})
    site.reaches(run_id, "waiting_human")
    operator = signed_in(site, browser, "operator")
    operator.goto(f"/runs/{run_id}")
    picture(operator, "review-scope")
    question = site.run(run_id)["waiting_for"][0]
    slow = {"system": "library", "operation": "embed"}
    fault(site, {**slow, "latency_ms": 4000})
    site.api(f"/runs/{run_id}/answers/{question['id']}", "operator", {"answer": question["detail"]["prefilled"]})
    eventually(lambda: site.run(run_id)["children"]["completed"] >= 4, "a batch that was read")
    eventually(lambda: site.run(run_id)["children"]["running"] >= 4, "a batch that is being read")
    operator.reload()
    expect(operator.locator("h1 ~ .chip")).to_contain_text("waiting")
    picture(operator, "review-reading")
    fault(site, slow)
    site.reaches(run_id, "completed")


def busy_worker(site: Site) -> int | None:
    rows = site.api("/fleet")["results"]
    return next((int(row["pid"]) for row in rows if row["kind"] == "worker" and row["slots_used"]), None)


def fault(site: Site, what: dict[str, Any]) -> None:
    urllib.request.urlopen(
        f"http://127.0.0.1:{site.sandbox_port}/faults", json.dumps(what).encode(), timeout=20
    ).close()


# Refunds first, while nothing else waits.
TAKEN = {"people": take_people, "vendor": take, "mail": take_mail, "review": take_review}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
