"""The pages for people: what the outside systems hold, a button for the W-9, a form for the faults. No script anywhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from . import mail
from .callbacks import Courier
from .faults import Fault, FaultBook
from .markup import Markup, button, chip, code, link, long_code, page, panel, run, show, table, time
from .problems import Problem
from .store import Store
from .systems import portal
from .wire import bounded_body

NEWEST = 200
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
    ("/effects.html", "requests received", "SELECT count(*) FROM requests"),
    ("/effects.html", "effects executed", "SELECT count(*) FROM requests WHERE executed"),
)
_VENDORS = "SELECT * FROM vendors ORDER BY seq DESC LIMIT ?"
_ORDERS = "SELECT o.*, v.legal_name FROM purchase_orders o JOIN vendors v ON v.seq = o.vendor_seq ORDER BY o.seq DESC LIMIT ?"
_CREDENTIALS = "SELECT c.*, v.legal_name FROM credentials c JOIN vendors v ON v.seq = c.vendor_seq ORDER BY c.seq DESC LIMIT ?"
_W9 = "SELECT * FROM w9_requests ORDER BY closed_at IS NOT NULL, seq DESC LIMIT ?"
_MESSAGES = "SELECT seq, mail_from, recipients, subject, run_id, received_at FROM messages ORDER BY seq DESC LIMIT ?"
_REQUESTS = "SELECT * FROM requests WHERE :run_id IS NULL OR run_id = :run_id ORDER BY id DESC LIMIT :newest"


class Pages:
    """Reads the store and renders; the two things that change something go through the portal and the fault book."""

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
            lambda connection: [connection.execute(query).fetchone()[0] for _, _, query in _COUNTS]
        )
        cards = "".join(
            f'<a class="card" href="{href}"><b>{count:,}</b><span class="muted">{label}</span></a>'
            for (href, label, _), count in zip(_COUNTS, counts, strict=True)
        )
        told = (
            "The systems the demo agents act on, and the record of what really happened to them. For programs: "
            '<a href="/effects">/effects</a>, <a href="/faults">/faults</a>, <a href="/healthz">/healthz</a>.'
        )
        return _html(
            "/", "Overview", Markup(f'<p class="muted">{told}</p><div class="cards">{cards}</div>')
        )

    async def show_erp(self, request: Request) -> Response:
        vendors, orders = await self._rows(_VENDORS), await self._rows(_ORDERS)
        vendor_table = table(
            ("vendor", "legal name", "country", "tax id", "contact", "category", "run", "created"),
            [
                (
                    code(f"VND-{row['seq']:06d}"),
                    row["legal_name"],
                    row["country"],
                    row["tax_id"],
                    row["contact_email"],
                    row["category"],
                    run(row["run_id"]),
                    time(row["created_at"]),
                )
                for row in vendors
            ],
            empty="No vendor has been created yet.",
        )
        order_table = table(
            ("order", "vendor", "description", "amount", "run", "filed"),
            [
                (
                    code(f"PO-{row['seq']:06d}"),
                    row["legal_name"],
                    row["description"],
                    _dollars(row["amount_usd"]),
                    run(row["run_id"]),
                    time(row["created_at"]),
                )
                for row in orders
            ],
            empty="No purchase order has been filed yet.",
        )
        return _html(
            "/erp",
            "ERP",
            panel("Purchase orders", order_table, _newest(orders)),
            panel("Vendors", vendor_table, _newest(vendors)),
        )

    async def show_portal(self, request: Request) -> Response:
        rows = await self._rows(_W9)
        shown = table(
            ("request", "vendor", "tax id", "state", "callback", "run", "requested", ""),
            [
                (
                    code(f"REQ-{row['seq']:06d}"),
                    row["legal_name"],
                    row["tax_id"],
                    _w9_state(row),
                    urlsplit(row["callback_url"]).netloc,
                    run(row["run_id"]),
                    time(row["created_at"]),
                    Markup()
                    if row["closed_at"]
                    else button(f"/portal/w9-requests/{row['seq']}/send", "Send it now"),
                )
                for row in rows
            ],
            empty="No W-9 has been requested yet.",
        )
        delay = f"forms are signed {self._faults.w9_delay_seconds:g} s after the request"
        return _html("/portal", "Vendor portal", panel("W-9 requests", shown, delay))

    async def send_now(self, request: Request) -> Response:
        seq = _seq(request)
        if not await self._store.write(lambda connection: portal.release(connection, seq)):
            raise Problem(404, "no such W-9 request")
        self._courier.wake()
        return RedirectResponse("/portal", status_code=303)

    async def show_credentials(self, request: Request) -> Response:
        rows = await self._rows(_CREDENTIALS)
        shown = table(
            ("credential", "vendor", "scope", "secret", "run", "provisioned"),
            [
                (
                    code(f"CRD-{row['seq']:06d}"),
                    row["legal_name"],
                    row["scope"],
                    code(f"{row['secret'][:13]}••••••••"),
                    run(row["run_id"]),
                    time(row["created_at"]),
                )
                for row in rows
            ],
            empty="No credential has been provisioned yet.",
        )
        return _html("/credentials", "Credentials", panel("Provisioned", shown, _newest(rows)))

    async def show_mail(self, request: Request) -> Response:
        rows = await self._rows(_MESSAGES)
        shown = table(
            ("subject", "from", "to", "run", "received"),
            [
                (
                    link(f"/mail/{row['seq']}", row["subject"] or "(no subject)"),
                    row["mail_from"],
                    mail.addresses(row["recipients"]),
                    run(row["run_id"]),
                    time(row["received_at"]),
                )
                for row in rows
            ],
            empty="No mail has arrived yet.",
        )
        return _html("/mail", "Mail", panel("Inbox", shown, _newest(rows)))

    async def show_message(self, request: Request) -> Response:
        seq = _seq(request)
        row = await self._store.read(
            lambda connection: connection.execute(
                "SELECT * FROM messages WHERE seq = ?", (seq,)
            ).fetchone()
        )
        if row is None:
            raise Problem(404, "no such message")
        about = (
            ("subject", row["subject"]),
            ("from", row["mail_from"]),
            ("to", mail.addresses(row["recipients"])),
            ("received", time(row["received_at"])),
            ("run", run(row["run_id"])),
        )
        listed = Markup("".join(f"<dt>{name}</dt><dd>{show(value)}</dd>" for name, value in about))
        body = Markup(
            f'<div class="body"><dl>{listed}</dl></div><div class="body said">{show(mail.body_text(row["raw"]))}</div>'
        )
        return _html("/mail", "Mail", panel(f"Message {seq}", body))

    async def show_effects(self, request: Request) -> Response:
        run_id = request.query_params.get("run_id") or None
        query = {"run_id": run_id and mail.storable(run_id), "newest": NEWEST}
        rows = await self._store.read(
            lambda connection: connection.execute(_REQUESTS, query).fetchall()
        )
        shown = table(
            ("id", "system", "operation", "outcome", "key", "body", "run", "received"),
            [
                (
                    row["id"],
                    row["system"],
                    row["operation"],
                    chip("ok", "executed") if row["executed"] else chip("", "no change"),
                    long_code(row["idempotency_key"]),
                    code(row["body_sha256"] and row["body_sha256"][:12]),
                    run(row["run_id"]),
                    time(row["received_at"]),
                )
                for row in rows
            ],
            empty="Nothing has been received yet."
            if run_id is None
            else "Nothing has been received from this run.",
        )
        note = _newest(rows) if run_id is None else f"run {run_id}"
        return _html(
            "/effects.html", "Effects", panel("Requests received, newest first", shown, note)
        )

    async def show_faults(self, request: Request) -> Response:
        return self._faults_page()

    async def save_fault(self, request: Request) -> Response:
        try:
            await self._faults.replace(_fault_form(await bounded_body(request)))
        except Problem as problem:
            field = (
                f"{problem.field}: "
                if problem.field and not problem.detail.startswith(problem.field)
                else ""
            )
            return self._faults_page(
                f"Nothing was changed. {field}{problem.detail}", status=problem.status
            )
        self._courier.wake()
        return RedirectResponse("/faults.html", status_code=303)

    def _faults_page(self, error: str = "", status: int = 200) -> Response:
        names = [field.name for field in dataclass_fields(Fault)]
        listed = table(
            [name.replace("_", " ") for name in names],
            [[getattr(fault, name) for name in names] for fault in self._faults.entries()],
            empty="No fault is in force.",
        )
        warning = [Markup(f'<p class="error" role="alert">{show(error)}</p>')] if error else []
        told = "the most specific entry applies, whole; * is all"
        return _html(
            "/faults.html",
            "Faults",
            *warning,
            panel("In force", listed, told),
            panel("Replace an entry", _fault_inputs(self._faults.targets())),
            status=status,
        )

    async def style(self, request: Request) -> Response:
        return Response(
            STYLE.read_text(), media_type="text/css", headers={"X-Content-Type-Options": "nosniff"}
        )

    async def _rows(self, query: str) -> list[sqlite3.Row]:
        return await self._store.read(
            lambda connection: connection.execute(query, (NEWEST,)).fetchall()
        )


def _html(path: str, title: str, *parts: Markup, status: int = 200) -> Response:
    return Response(page(path, title, *parts), status, HEADERS, media_type="text/html")


def _seq(request: Request) -> int:
    seq: int = request.path_params["seq"]
    return seq if seq < LARGEST_SEQ else 0  # beyond SQLite's integers there is nothing either


def _dollars(amount: str) -> str:
    whole, _, cents = amount.partition(".")
    return f"${int(whole):,}.{cents or '00'}"


def _newest(rows: list[Any]) -> str:
    return f"the newest {NEWEST}" if len(rows) == NEWEST else ""


def _w9_state(row: sqlite3.Row) -> Markup:
    tried = f" after {row['attempts']} tries" if row["attempts"] > 1 else ""
    if row["closed_at"]:
        return Markup(
            f"{chip('ok', 'sent')} <span class='small muted'>{show(row['last_result'] + tried)}</span>"
        )
    if row["notice"] is not None:
        last = f"{row['last_result']}{tried}" if row["last_result"] else "under way"
        return Markup(f"{chip('wait', 'sending')} <span class='small muted'>{show(last)}</span>")
    return chip("wait", "waiting for the vendor")


def _fault_form(body: bytes) -> dict[str, Any]:
    """A browser's form as /faults wants it: numbers as numbers, blank fields left out."""
    try:
        given: dict[str, Any] = dict(parse_qsl(body.decode("ascii"), max_num_fields=20))
    except ValueError:
        raise Problem(400, "the form can't be read") from None
    numbers = {field.name for field in dataclass_fields(Fault)} - {"system", "operation"}
    for name in numbers & given.keys():
        try:
            given[name] = float(given[name])
        except ValueError:
            raise Problem(422, "must be a number", field=name) from None
    return given


def _fault_inputs(targets: dict[str, list[str]]) -> Markup:
    selects = "".join(
        f"<label>{name}<select name={name}>{''.join(f'<option>{value}</option>' for value in values)}</select></label>"
        for name, values in targets.items()
    )
    inputs = "".join(
        f'<label>{label}<input name="{name}" inputmode="decimal" placeholder="{blank}"></label>'
        for name, label, blank in (
            ("latency_ms", "latency, ms", "0"),
            ("error_rate", "error rate, 0 to 1", "0"),
            ("drop_after_execute_rate", "drop after execute, 0 to 1", "0"),
            ("w9_delay_seconds", "W-9 delay, s", "3"),
        )
    )
    return Markup(
        f'<form class="body fields" method="post" action="/faults.html">{selects}{inputs}<button class="btn">Replace</button></form>'
    )
