"""The readable record: what each run was asked to do, who approved what, what was sent, and how the run ended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string

from durableagents.contrib.evidence.contents import RunContents
from durableagents.contrib.evidence.verify import Call, EventLine, minute, without_digest
from ledger.web.text_safety import pieces

# With these limits, the record of a routine run prints on three pages. The bundle's other files contain the rest.
MAX_APPROVALS, MAX_CALLS, MAX_ACTS, MAX_RUNS = 40, 60, 40, 100
MAX_VALUE, MAX_WHY = 600, 400


@dataclass
class Answer:
    """A vote or a decision."""

    verdict: str
    by: str
    role: str
    at: str
    why: str
    seq: int


@dataclass
class AskedFor:
    """A question that approvers were asked."""

    title: str
    amount: str
    queue: str
    at: str
    arguments: str
    seq: int
    votes: list[Answer]
    decision: Answer | None
    problem: str = ""


@dataclass
class Sent:
    """A call that was sent."""

    tool: str
    at: str
    arguments: str
    status: str
    external_id: str
    times: str
    seq: int
    binding: str
    is_bound: bool


@dataclass
class RunRecord:
    """One run, as it appears in the record. `more` counts the items that aren't shown."""

    about: dict[str, Any]
    state: str
    events: int
    head: str
    approvals: list[AskedFor]
    calls: list[Sent]
    acts: list[dict[str, Any]]
    seal: dict[str, Any] | None
    is_sealed: bool
    unknown: int
    erased: Answer | None
    more: dict[str, int] = field(default_factory=dict)


def visible(text: object, most: int = MAX_VALUE) -> str:
    """Return the text with invisible characters replaced by visible marks that name them."""
    marked = "".join(f"‹{piece.text}›" if piece.is_mark else piece.text for piece in pieces(str(text)[:most]))
    rest = len(str(text)) - most
    return marked if rest <= 0 else f"{marked}… ({rest} more characters)"


def run_record(
    contents: RunContents, about: dict[str, Any], proofs: list[dict[str, Any]], acts: list[dict[str, Any]]
) -> RunRecord:
    """Return the record of a run, after its events were read."""
    facts, head = contents.facts, contents.head
    approvals = [_asked_for(contents, approval_id) for approval_id in list(facts.questions)[:MAX_APPROVALS]]
    calls = [_sent(contents, key, call) for key, call in list(facts.calls.items())[:MAX_CALLS]]
    erased = facts.erased
    return RunRecord(
        about=about
        | {"agent": visible(about["agent"]), "created_by": visible(about["created_by"])}
        | {name: minute(about[name]) for name in ("created_at", "ended_at") if about[name]},
        state=facts.state,
        events=head.seq,
        head=bytes(head.chain).hex(),
        approvals=approvals,
        calls=calls,
        acts=[_act(contents, each) for each in sorted(acts, key=_moment)[:MAX_ACTS]],
        seal=proofs[-1] | {"when": minute(proofs[-1]["seal"]["at"])} if proofs else None,
        is_sealed=bool(proofs) and proofs[-1]["seq"] == head.seq,
        unknown=sum(1 for status in facts.status.values() if status == "unknown"),
        erased=None if erased is None else _answer(erased),
        more={
            "approvals": len(facts.questions) - len(approvals),
            "calls": len(facts.calls) - len(calls),
            "acts": max(len(acts) - MAX_ACTS, 0),
        },
    )


def _asked_for(contents: RunContents, approval_id: str) -> AskedFor:
    facts = contents.facts
    line = facts.questions[approval_id].line
    amount = line.inner("amount")
    decision = facts.decisions.get(approval_id)
    return AskedFor(
        title=visible(without_digest("title", line.inner("title")) or line["tool"] or "Question", 120),
        amount=visible(f"{amount['value']} {amount.get('currency', '')}", 60) if _is_amount(amount) else "",
        queue=visible(line["queue"], 80),
        at=minute(line.at),
        arguments=_value(line.inner("arguments")),
        seq=line.seq,
        votes=[_answer(vote) for vote in facts.votes.get(approval_id, ())],
        decision=None if decision is None else _answer(decision),
    )


def _is_amount(amount: Any) -> bool:
    return isinstance(amount, dict) and isinstance(amount.get("value"), str)


def _answer(line: EventLine) -> Answer:
    why = without_digest("reason", line.inner("justification")) or line["reason"] or ""
    role = visible(line["role"] or "", 80)
    verdict = visible(line["verdict"] or "", 20)
    return Answer(verdict, visible(line["by"], 80), role, minute(line.at), visible(why, MAX_WHY), line.seq)


def _sent(contents: RunContents, key: tuple[Any, int], call: Call) -> Sent:
    facts, line = contents.facts, call.line
    binding, is_bound = "no approval was needed", True
    if line["grant"]:
        if not isinstance(line.payload, dict) or "arguments" not in line.payload:
            binding, is_bound = "an approval was needed; its content is not in this bundle", False
        elif problem := facts.problem_of_grant(call):
            binding, is_bound = f"NOT what was approved: {problem}", False
        else:
            binding = "exactly the approved arguments"
    return Sent(
        tool=visible(line["tool"], 80),
        at=minute(line.at),
        arguments=_value(line.inner("arguments")),
        status=_outcome(contents, key),
        external_id="" if key in facts.verdicts else _external_id(contents, key),
        times=facts.sent(key),
        seq=line.seq,
        binding=binding,
        is_bound=is_bound,
    )


def _external_id(contents: RunContents, key: tuple[Any, int]) -> str:
    return visible(without_digest("external id", contents.external_ids.get(key, "")), 120)


def _outcome(contents: RunContents, key: tuple[Any, int]) -> str:
    """Return a call's outcome and, if it was stated later, by whom and with which external id or receipt."""
    given = ""
    if key in contents.facts.verdicts:
        given = _external_id(contents, key) or visible(contents.facts.receipt(key), 120)
    return visible(contents.facts.outcome(key), 160) + (f": {given}" if given else "")


def _moment(row: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(row["at"])


def _act(contents: RunContents, row: dict[str, Any]) -> dict[str, Any]:
    at, verdicts = _moment(row), contents.facts.verdicts
    # The event of a person's verdict is written just after their act.
    settled = (key for key, line in verdicts.items() if row["action"] == "reconcile" and line.seq == row["seq"] + 1)
    about = next((f"{visible(verdicts[key]['tool'], 80)}: {_outcome(contents, key)}" for key in settled), "")
    return {
        "action": visible(row["action"], 40),
        "about": about,
        "by": visible(row["by"], 80),
        "role": visible(row["role"], 80),
        "at": minute(at.isoformat()),
        "why": visible(without_digest("reason", row["justification"]), MAX_WHY),
    }


def _value(value: Any) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=1)) if value is not None else ""


def render(runs: list[RunRecord], manifest: dict[str, Any], key: str, more_runs: int) -> bytes:
    """Render the page: one file without scripts, for any browser or printer."""
    context = {"runs": runs, "manifest": manifest, "key": key, "more_runs": more_runs}
    return render_to_string("evidence/record.html", context).encode()
