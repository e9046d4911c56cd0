"""Agents, queues and people that the demo adds to an installation. Registered by settings.py.

It contains only data, because every process reads the settings, even those that don't load the demo's agents.
"""

from __future__ import annotations

from typing import NamedTuple

AGENTS = (
    "durableagents.demo.vendor_onboard",
    "durableagents.demo.warehouse",
    "durableagents.demo.mail_before_gate",
    "durableagents.demo.customer_refund",
    "durableagents.demo.literature.paper_reader",
    "durableagents.demo.literature.literature_review",
)

# Queue → the role that decides it.
QUEUES = {"finance_po": "approver_finance", "legal": "approver_legal", "customer_refunds": "approver_finance"}


class Person(NamedTuple):
    """A person of the demo.

    `role` is the person's only group, `does` describes what the person does, and `label` is the name on the sign-in
    page (by default, that of the role).
    """

    role: str
    does: str
    label: str = ""


PEOPLE = {
    "integrator": Person("integrator", "starts runs and reads them"),
    "operator": Person("operator", "starts, pauses, cancels, retries, settles unknown outcomes"),
    "finance": Person("approver_finance", "decides purchase orders and refunds, stops what waits for them"),
    "treasurer": Person("approver_finance", "decides refunds above the limit of the others in finance", "Treasurer"),
    "legal": Person("approver_legal", "decides sanctions matches, stops what waits for them"),
    "auditor": Person("auditor", "reads everything, changes nothing"),
}
