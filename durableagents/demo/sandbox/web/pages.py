"""The pages for people: the data of the outside systems, a button for the W-9, and a form for faults.

No page contains a script.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from .. import mail
from ..callbacks import Courier
from ..faults import Fault, FaultBook
from ..store import Store
from ..systems import portal
from .rendering import NEWEST, newest, render
from .wire import Problem, bounded_body

LARGEST_SEQ = 10**12
STYLE = Path(__file__).with_name("sandbox.css")
# Nothing is loaded but the stylesheet, nothing runs, nobody frames the buttons.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_COUNTS = (
    ("/erp", "vendors", "SELECT count(*) FROM vendors"),
    ("/erp", "purchase orders", "SELECT count(*) FROM purchase_orders"),
    ("/portal", "W-9 requests", "SELECT count(*) FROM w9_requests"),
    ("/portal", "W-9 still open", "SELECT count(*) FROM w9_requests WHERE closed_at IS NULL"),
    ("/credentials", "credentials", "SELECT count(*) FROM credentials"),
    ("/mail", "messages", "SELECT count(*) FROM messages"),
    ("/library", "texts embedded", "SELECT count(*) FROM embeddings"),
    ("/library", "reports", "SELECT count(*) FROM reports"),
    ("/effects.html", "requests received", "SELECT count(*) FROM requests"),
    ("/effects.html", "effects executed", "SELECT count(*) FROM requests WHERE executed"),
)
_VENDORS = "SELECT * FROM vendors ORDER BY seq DESC LIMIT ?"
_ORDERS = (
    "SELECT o.*, v.legal_name FROM purchase_orders o JOIN vendors v ON v.seq = o.vendor_seq ORDER BY o.seq DESC LIMIT ?"
)
_CREDENTIALS = (
    "SELECT c.*, v.legal_name FROM credentials c JOIN vendors v ON v.seq = c.vendor_seq ORDER BY c.seq DESC LIMIT ?"
)
_W9 = "SELECT * FROM w9_requests ORDER BY closed_at IS NOT NULL, seq DESC LIMIT ?"
_MESSAGES = "SELECT seq, mail_from, recipients, subject, run_id, received_at FROM messages ORDER BY seq DESC LIMIT ?"
_REPORTS = "SELECT seq, title, sha256, run_id, created_at FROM reports ORDER BY seq DESC LIMIT ?"
_REQUESTS = "SELECT * FROM requests WHERE :run_id IS NULL OR run_id = :run_id ORDER BY id DESC LIMIT :newest"


class Pages:
    """Renders pages from the store. The only two actions go through the portal and the fault book."""

    def __init__(self, store: Store, faults: FaultBook, courier: Courier) -> None:
        self._store = store
        self._faults = faults
        self._courier = courier

    def routes(self) -> list[BaseRoute]:
        shown: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self.show_overview,
            "/erp": self.show_erp,
            "/portal": self.show_portal,
            "/credentials": self.show_credentials,
            "/mail": self.show_mail,
            "/mail/{seq:int}": self.show_message,
            "/library": self.show_library,
            "/library/{seq:int}": self.show_report,
            "/effects.html": self.show_effects,
            "/faults.html": self.show_faults,
            "/sandbox.css": self.style,
        }
        acted = {
            "/portal/w9-requests/{seq:int}/send": self.send_now,
            "/faults.html": self.save_fault,
        }
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in acted.items()),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in shown.items()),
        ]

    async def show_overview(self, request: Request) -> Response:
        counts = await self._store.read(
            lambda connection: [
                (href, label, connection.execute(query).fetchone()[0]) for href, label, query in _COUNTS
            ]
        )
        return _html("/", "overview.html", counts=counts)

    async def show_erp(self, request: Request) -> Response:
        return _html("/erp", "erp.html", vendors=await self._rows(_VENDORS), orders=await self._rows(_ORDERS))

    async def show_portal(self, request: Request) -> Response:
        delay = f"forms are signed {self._faults.w9_delay_seconds:g} s after the request"
        return _html("/portal", "portal.html", requests=await self._rows(_W9), delay=delay)

    async def send_now(self, request: Request) -> Response:
        seq = _seq(request)
        if not await self._store.write(lambda connection: portal.release(connection, seq)):
            raise Problem(404, "no such W-9 request")
        self._courier.wake()
        return RedirectResponse("/portal", status_code=303)

    async def show_credentials(self, request: Request) -> Response:
        return _html("/credentials", "credentials.html", credentials=await self._rows(_CREDENTIALS))

    async def show_mail(self, request: Request) -> Response:
        return _html("/mail", "mail.html", messages=await self._rows(_MESSAGES))

    async def show_message(self, request: Request) -> Response:
        seq = _seq(request)
        row = await self._store.read(
            lambda connection: connection.execute("SELECT * FROM messages WHERE seq = ?", (seq,)).fetchone()
        )
        if row is None:
            raise Problem(404, "no such message")
        return _html("/mail", "message.html", title=f"Message {seq}", message=row)

    async def show_library(self, request: Request) -> Response:
        return _html("/library", "library.html", reports=await self._rows(_REPORTS))

    async def show_report(self, request: Request) -> Response:
        seq = _seq(request)
        row = await self._store.read(
            lambda connection: connection.execute("SELECT * FROM reports WHERE seq = ?", (seq,)).fetchone()
        )
        if row is None:
            raise Problem(404, "no such report")
        return _html("/library", "report.html", title=f"Report {seq}", report=row)

    async def show_effects(self, request: Request) -> Response:
        run_id = request.query_params.get("run_id") or None
        query = {"run_id": run_id and mail.storable(run_id), "newest": NEWEST}
        rows = await self._store.read(lambda connection: connection.execute(_REQUESTS, query).fetchall())
        note = newest(rows) if run_id is None else f"run {run_id}"
        return _html("/effects.html", "effects.html", requests=rows, run_id=run_id, note=note)

    async def show_faults(self, request: Request) -> Response:
        return self._faults_page()

    async def save_fault(self, request: Request) -> Response:
        try:
            await self._faults.replace(_fault_form(await bounded_body(request)))
        except Problem as problem:
            field = f"{problem.field}: " if problem.field and not problem.detail.startswith(problem.field) else ""
            return self._faults_page(f"Nothing was changed. {field}{problem.detail}", status=problem.status)
        self._courier.wake()
        return RedirectResponse("/faults.html", status_code=303)

    def _faults_page(self, error: str = "", status: int = 200) -> Response:
        names = list(Fault.model_fields)
        return _html(
            "/faults.html",
            "faults.html",
            status,
            error=error,
            names=names,
            heads=[name.replace("_", " ") for name in names],
            faults=self._faults.entries(),
            targets=self._faults.targets(),
        )

    async def style(self, request: Request) -> Response:
        return Response(STYLE.read_text(), media_type="text/css", headers={"X-Content-Type-Options": "nosniff"})

    async def _rows(self, query: str) -> list[sqlite3.Row]:
        return await self._store.read(lambda connection: connection.execute(query, (NEWEST,)).fetchall())


def _html(section: str, template: str, status: int = 200, **shown: Any) -> Response:
    return Response(render(template, section=section, **shown), status, HEADERS, media_type="text/html")


def _seq(request: Request) -> int:
    seq: int = request.path_params["seq"]
    return seq if seq < LARGEST_SEQ else 0  # beyond SQLite's integers there is nothing either


def _fault_form(body: bytes) -> dict[str, Any]:
    """Return a browser's form in the format of /faults: numbers parsed, blank fields omitted."""
    try:
        given: dict[str, Any] = dict(parse_qsl(body.decode("ascii"), max_num_fields=20))
    except ValueError:
        raise Problem(400, "the form can't be read") from None
    numbers = set(Fault.model_fields) - {"system", "operation"}
    for name in numbers & given.keys():
        try:
            given[name] = float(given[name])
        except ValueError:
            raise Problem(422, "must be a number", field=name) from None
    return given
