"""The sandbox: the outside world that the demo's agents act on, and the oracle: its record of what really happened.

A separate process (``python -m durableagents.demo.sandbox``), which uses neither Django nor other code of this project.
It simulates eight systems: company registry, sanctions list, vendor portal, ERP, credential service, a library, a shop
and a mail server.
Everything is on disk, fsynced, before a request is answered, so ``kill -9`` at any moment loses nothing that was
acknowledged.

Environment: ``DURABLEAGENTS_DATA`` (default ``.data`` in the checkout; the store is ``sandbox/sandbox.db`` in it),
``SANDBOX_PORT`` (8001), ``SANDBOX_SMTP_PORT`` (``SANDBOX_PORT`` + 1). It binds 127.0.0.1 only. If a port is
taken, a value is invalid or another sandbox uses the same data, it prints one line on stderr and exits with code 2.
SIGTERM and SIGINT end it within about two seconds with exit code 0.

Headers a tool sends
====================
``X-Run-Id``
    A run's id in the API's format; 1-200 printable ASCII characters. In mail it is a header of the message.
``Idempotency-Key``
    1-255 printable ASCII characters without spaces. Required on keyed operations, recorded on reads. Ignored in mail.

Bodies are JSON objects (UTF-8, at most 1 MiB, at most 32 levels deep, no duplicate names; NaN, NUL characters and lone
surrogates anywhere in them are refused, naming the field). Every error is ``application/problem+json``: ``{type, title,
status, detail}`` and, where one field is to blame, ``field``. 400 malformed request or missing/malformed header, 403 a
write from a page of another origin, 404 unknown path, 405 method, 409 key in progress, 413 body too large, 422 a field
is wrong or the key was used with another body, 503 injected error or store unavailable. Members of a request body that
are not named below are ignored, but they are part of the bytes that the key is bound to.

Pure reads
==========
``GET /api/registry/companies?name=&country=&tax_id=`` - ``registry.lookup``
    All three are required: name 1-300 characters, country two letters, tax_id 4-20 letters, digits, hyphens. Any
    well-formed company gets an answer, always the same one: 200 ``{legal_name, country, tax_id, registration_number,
    status, legal_form, incorporated_on, dissolved_on, address {street, city, postal_code, country}, notes [text]}``.
    ``status`` is ``active``, ``dissolved`` or ``sanctioned``. Documented names (case, accents, punctuation and legal
    form don't matter):

    =================================  ==============  ========================================================
    Phoenix Dissolved Trading Ltd      ``dissolved``   struck off the register; ``dissolved_on`` is set
    Orion Ghost Logistics LLC          ``dissolved``   wound up; ``dissolved_on`` is set
    Volga Heavy Industries             ``sanctioned``  the register carries a sanctions note
    Crimson Delta Maritime             ``sanctioned``  the register carries a sanctions note
    =================================  ==============  ========================================================

    Every other name is ``active`` with no notes, e.g. "Nordlicht Antriebe GmbH", "Acme Pallets Ltd", "Baltic Cold Chain
    OÜ".

``GET /api/sanctions/screen?name=&country=`` - ``sanctions.screen``
    name required, country optional (it is echoed and shown with a match; it never hides one). 200 ``{query {name,
    country}, matches [{name, score, list, reason, country, aliases, matched_on}], best, threshold, is_hit}``. ``score``
    is an integer 0-100; ``matches`` holds the entries at or above ``threshold`` (85), best first; ``best`` is the
    highest score, even if it is below ``threshold``; ``is_hit`` is ``best >= threshold``. "Volga Heavy Industries" and
    near misses ("Volga Hevy Industrys") hit.

``GET /api/shop/orders?number=`` - ``shop.order``
    ``number`` is SO- and six digits. 200 ``{order_number, customer, goods, ordered_on, paid_usd}``, for any number and
    always the same; 422 for SO-000000, which nobody ever ordered.

Keyed effects
=============
Same key and same body bytes: the stored status and answer, with ``Idempotent-Replayed: true``. Same key, other body:
422. First request still in progress: 409 with ``Retry-After: 1`` (a client that stops waiting doesn't stop the request:
retry until the stored answer comes). Missing key: 400. Keys are scoped per operation and kept forever. Refusals (4xx)
and injected errors are not stored, so the key can be used again.

``POST /api/portal/w9-requests {legal_name, tax_id, contact_email, callback_url}`` - ``portal.request_w9``
    202 ``{request_id: "REQ-000001", status: "requested"}``. After ``w9_delay_seconds`` (default 3), or when someone
    presses "Send it now" on the portal's page, the portal POSTs to ``callback_url`` (http or https, at most 2,000
    characters) JSON ``{request_id, status: "received", form: {legal_name, tax_id, classification, signed_by, signed_at,
    document_sha256}}``, the same bytes every time, until the answer is 2xx, 404 or 410, with back-off up to 3 s and
    across its own restarts. A changed ``w9_delay_seconds`` applies to requests whose form isn't signed yet, counted
    from the time of the request.
``POST /api/erp/vendors {legal_name, country, tax_id, contact_email, category}`` - ``erp.create_vendor``
    201 ``{vendor_id: "VND-000001", status: "active", legal_name, country, tax_id, contact_email, category}``.
``POST /api/erp/purchase-orders {vendor_id, description, amount_usd}`` - ``erp.file_purchase_order``
    ``amount_usd`` is a decimal string with at most two places ("84000.00") or a JSON integer, above zero.
    201 ``{po_number: "PO-000001", status: "filed", vendor_id, description, amount_usd}``; an unknown vendor is 422.
``POST /api/credentials {vendor_id, scope}`` - ``credentials.provision``
    ``scope`` is 1-200 characters. 201 ``{credential_id: "CRD-000001", vendor_id, scope, secret: "sk_sandbox_…"}``; a
    repeat returns the same secret; an unknown vendor is 422.

``POST /api/library/embeddings {document_id, sha256, text}`` - ``library.embed``
    ``text`` is 1-200,000 characters. 201 ``{embedding_id: "EMB-000001", vector: [8 integers]}``: a text has one vector,
    and each embedding is paid for.
``POST /api/library/reports {title, sha256, text}`` - ``library.publish``
    201 ``{report_id: "REP-000001", sha256}``; a text that doesn't match ``sha256`` is 422.

``POST /api/shop/refunds {order_number, amount_usd, note}`` - ``shop.refund``
    201 ``{refund_id: "RFD-000001", order_number, amount_usd, note}``. An amount above the unrefunded rest of the
    payment is 422.

Limits: names and categories 1-300 characters, descriptions 1-2,000, e-mail addresses 3-254.

To reconcile, read what a key did: ``GET <the same path>?idempotency_key=`` answers 200 ``{results: [answer]}``, with
the stored answer or an empty list, and 409 while a request under that key is in progress (its effect may yet happen).
These requests are reads, recorded as ``portal.find_w9_request``, ``erp.find_vendor``, ``erp.find_purchase_order``,
``credentials.find``, ``library.find_embedding``, ``library.find_report``, ``shop.find_refund``.

Mail
====
SMTP on ``SANDBOX_SMTP_PORT``, no TLS, no login, SMTPUTF8, at most 1 MiB. ``email.send_welcome``, or the operation named
by the mail header ``X-Operation`` (a-z, 0-9, _; faults for one that isn't ``send_announcement`` come from ``operation:
"*"``). The message is on disk before the 250. Keys are ignored: a message sent twice is two effects. ``GET
/api/mail/messages?run_id=&message_id=`` answers 200 ``{results: [{message_id, subject, received_at}]}``: the messages
of a run with that Message-ID that are already stored (an empty list isn't proof: one may still arrive). The oracle
doesn't record this request.

The oracle
==========
``GET /effects``: one JSON array of every request the systems received, oldest first: ``{id, system, operation,
idempotency_key, body_sha256, run_id, received_at, sender, sent_at, executed}``. ``executed`` is true on exactly one row
per effect: the request that changed the sandbox's state. ``sender`` and ``sent_at`` come from the header ``X-Sender:
<pid> <its monotonic clock in seconds>``, null without it. Reads, repeats, refusals and injected errors are rows with
``executed: false``; the portal's own callbacks and actions on the pages aren't recorded. ``body_sha256`` is of the raw
body (empty for reads; for mail the message after dot-unstuffing; null where a body was too large to read). The row is
on disk before anything else happens; the effect and ``executed: true`` commit together. ``GET /effects?run_id=``
returns the rows of one run.

Faults
======
``GET /faults`` lists the entries: ``[{system, operation, latency_ms, error_rate, drop_after_execute_rate,
w9_delay_seconds, refuse_rate}]``. ``POST /faults`` with such an object replaces the entry of that system and operation
(both default to ``"*"``) and answers 200 with it; ``DELETE /faults`` removes all. Omitted fields mean no fault. Entries
persist across restarts and never affect ``/effects``, ``/faults`` or the pages.

* ``latency_ms`` 0-600000: waits before doing anything; other requests aren't held up.
* ``error_rate`` 0-1: 503, or SMTP 451, before doing anything.
* ``drop_after_execute_rate`` 0-1: commits the effect, then closes the connection with no answer (mail: after storing,
  before the 250). It affects only requests that were executed, not reads, nor repeats answered from a stored key. So a
  rate of 1 loses the answer of every effect exactly once.
* ``w9_delay_seconds`` 0-86400, or null for "not set in this entry".
* ``refuse_rate`` 0-1: 403, or SMTP 550, before doing anything: a definite refusal, which clients don't retry.

Exactly one entry applies to a request: the most specific of (system, operation), (system, ``*``), (``*``, operation),
(``*``, ``*``), even if it sets no fault. Only ``w9_delay_seconds`` is taken from the most specific entry that sets
it. Unknown fields, systems or operations, wrong types, NaN and values out of range are 422 and change nothing.

Pages
=====
``/`` ``/erp`` ``/portal`` ``/credentials`` ``/mail`` ``/mail/{id}`` ``/library`` ``/library/{id}`` ``/effects.html``
``/faults.html``; ``GET /healthz`` answers 200 ``{status: "ok", pid}``.

Reading order: ``operations.py`` (all operations), ``pipeline.py`` (one request from receipt to answer), ``store.py``
(one writer, group commit), ``callbacks.py`` (the portal's callbacks), ``mail.py``, ``faults.py``, ``web/pages.py``
and ``web/rendering.py`` (how untrusted text is escaped on the pages).
"""
