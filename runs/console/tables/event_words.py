"""The descriptions of event kinds in the journal.
Each is called with the event's unencrypted fields (missing ones are "") and its attempt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils.safestring import SafeString

from ledger.templatetags.console import datum, short, title_of, visible, words
from runs.engine.budget import usd_of
from runs.engine.tape import CALLED_BACK
from runs.story import Effect, EventLine, findings

HOW = {"fork": "a fork", "start_again": "started again from the input"}
_STOOD = {
    "consent": "decided by a person here",
    "audit": "decided by a person before the start",
}


def link_to(html: str, page: str, *args: str) -> str:
    """Return a link, or only its text if there is no such page.
    There is none for the id of a damaged row, or if the app isn't installed."""
    try:
        return f'<a href="{escape(reverse(page, args=args))}">{html}</a>'
    except NoReverseMatch:
        return html


def _run(run_id: object) -> str:
    return link_to(f"<code>{visible(short(run_id))}</code>", "run", str(run_id))


def _at(visit: object) -> str:
    return f" at visit {escape(str(visit))}" if visit else ""


def outcome_text(word: object) -> str:
    return visible(HOW.get(str(word), str(word)))


def forked(f: Mapping[str, Any], attempt: int = 0) -> str:
    n = f["effects"]
    many = f"{escape(str(n))} effect{'' if n == 1 else 's'}"
    return f"{outcome_text(f['how'])} of {_run(f['origin'])}{_at(f['visit'])} · knows {many}"


def fork_made(f: Mapping[str, Any], attempt: int = 0) -> str:
    return f"{_run(f['fork'])} is {outcome_text(f['how'])}{_at(f['visit'])} · by {visible(f['by'])}"


def taken_over(f: Mapping[str, Any], attempt: int = 0) -> str:
    why = visible(_STOOD.get(str(f["how"]), str(f["how"])))
    named = f" {visible(f['external_id'])}" if f.get("external_id") else ""
    at = f" · recorded at {visible(f['of_slot'])} of {_run(f['of_run'])}" if f["of_slot"] else ""
    return f"<code>{visible(f['tool'])}</code>{named} · not sent: {why}{at}"


# For late results that are no answer or have no outcome.
_NO_OUTCOME = ("no_answer", "nothing")


def contradicted(e: Effect) -> str:
    which = f"of attempt {e.told_of} " if e.is_of_earlier else ""
    return f"{which}{findings.source(e.contradicted)} <b>{escape(findings.on_record(e.contradicted))}</b>"


def witness(e: Effect) -> str:
    return escape(findings.witness(e.late, f"attempt {e.told_of} of the call" if e.is_of_earlier else "the call"))


def late_news(news: Mapping[str, Any], tools: dict[str, Any]) -> SafeString:
    """Return a text about a late result of a stopped run: the call, the recorded outcome, and the result."""
    attempt = news.get("attempt")
    which = f", attempt {attempt + 1}" if isinstance(attempt, int) else ""
    text = str(news.get("told") or CALLED_BACK)
    return SafeString(
        f"<dt>{visible(title_of(tools, news.get('tool', '')))}{which}</dt>"
        f"<dd>on record: {_on_record(news)}, and {visible(findings.witness(text))}</dd>"
    )


def _on_record(news: Mapping[str, Any]) -> str:
    """Return a text for the recorded outcome. Stops recorded by earlier versions contain a failure code instead."""
    found, code = str(news.get("on_record") or "nothing"), news.get("code")
    if code is None and found not in (*findings.ON_RECORD, *_NO_OUTCOME):
        found, code = "refused", found
    with_code = f" with code {datum(code)}" if found == "refused" and code not in (None, "", "refused") else ""
    return f"<b>{visible(words(findings.on_record(found)))}</b>{with_code}"


WHY = {
    "tag": "by its tag",
    "share": "by the ramp's share",
    "halted": "the ramp was halted",
    "unserved": "no worker had the newer one",
    "unknown": "the starting process lacked the newer one",
}


def assigned(f: Mapping[str, Any], attempt: int = 0) -> str:
    version = f["to_version"] if f["is_new"] else f["from_version"]
    why = visible(WHY.get(str(f["why"]), str(f["why"])))
    tag = f" <code>{visible(f['tag'])}</code>" if f.get("tag") else ""
    share, place = (escape(f"{int(f[name]) / 100:g}") for name in ("share", "place"))
    at = f" (key at {place} of 100, share {share})" if f["why"] == "share" else ""
    return f"version <b>{visible(version)}</b>, {why}{tag}{at} · ramp {escape(str(f['ramp']))}"


Facts = defaultdict[str, Any]


def phrase(line: EventLine) -> str:
    """Return the description of an event; "" for a kind that this version doesn't know."""
    known = EVENTS.get(line.kind)
    return known(facts(line), line.attempt) if known else ""


def facts(line: EventLine) -> Facts:
    return defaultdict(str, line.clear)


def _plain(value: object) -> str:
    return escape(str(value))


def _context(fields: Facts) -> str:
    place = fields["place"]
    after = f"after call {_plain(place)}" if isinstance(place, int) and place > 0 else "on entry"
    return f"applies {after}, visit {_plain(str(fields['visit']).partition('.')[2])}"


def _usd(micro: object) -> str:
    return f"${usd_of(micro)}" if isinstance(micro, int) else "–"


def _tokens(f: Facts) -> str:
    return f"{_plain(f['tokens_in'])} in, {_plain(f['tokens_out'])} out"


def _amounts(f: Facts) -> str:
    return f"{_tokens(f)} · {_usd(f['usd_micro'])}"


def _caps(caps: object) -> str:
    stated = caps if isinstance(caps, dict) else {}
    texts = [
        f"{visible(words(name))} {_usd(most) if name == 'usd_micro' else _plain(most)}" for name, most in stated.items()
    ]
    return ", ".join(texts).replace("usd micro ", "") or "no caps"


def _models(event: dict[str, Any]) -> str:
    named = event["models"] if isinstance(event["models"], list) else []
    whose = visible(event["assistant"]) or "every assistant"
    return f"{whose} asks {', '.join(visible(model) for model in named) or '—'}"


def _attributes(f: Facts) -> str:
    stated: defaultdict[str, list[str]] = defaultdict(list)
    for name, kind, value in zip(f["names"], f["kinds"], f["values"], strict=False):
        is_money = kind == "money" and str(value).lstrip("-").isdecimal()
        stated[name].append(f"${usd_of(int(value))}" if is_money else str(value))
    return "; ".join(f"{visible(name)} {visible(', '.join(stated[name])) or '–'}" for name in f["named"]) or "nothing"


def _words(value: object) -> str:
    return escape(words(value))


def _by(f: Facts, attempt: int) -> str:
    return f"by {visible(f['by'])}"


def _code(f: Facts, attempt: int) -> str:
    return visible(words(f["code"]))


def _tool(f: Facts, attempt: int) -> str:
    return f"<code>{_plain(f['tool'])}</code>"


def _tool_and(what: str) -> Callable[[Facts, int], str]:
    return lambda f, attempt: f"{_tool(f, attempt)} · {what}"


def _plan(f: Facts) -> str:
    return f"plan <code>{_plain(short(f['plan_hash']))}</code>"


def _turn(f: Facts) -> str:
    return f"turn {f['turn'] + 1}"


def _again(attempt: int) -> str:
    return f" · attempt {attempt + 1}" if attempt else ""


def _invoked(f: Facts, attempt: int) -> str:
    granted = " · approval consumed" if f["grant"] else ""
    return f"{_tool(f, attempt)} · intent recorded, {_words(f['replay_class'])}{_again(attempt)}{granted}"


def _returned(f: Facts, attempt: int) -> str:
    named = f" → {visible(f['external_id'])}" if f["external_id"] else ""
    return f"{_tool(f, attempt)}{named}"


def _late(f: Facts, attempt: int) -> str:
    source, on_record = findings.source(f["contradicts"]), _plain(findings.on_record(f["contradicts"]))
    text = f'<b class="bad">{source} “{on_record}”</b>' if f["contradicts"] else ""
    return f"{_tool(f, attempt)} {_words(f['outcome'])}, says {visible(f['by'])} · {text or 'without effect'}"


def _outcome_line(f: Facts, attempt: int) -> str:
    return f"{_tool(f, attempt)} {_plain(findings.on_record(f['verdict']))}, by {visible(f['by'])}"


def _cancelled(f: Facts, attempt: int) -> str:
    n = len(f["in_flight"])
    return f"by {visible(f['by'])}; {n} call{'' if n == 1 else 's'} outstanding"


def _lost(f: Facts, attempt: int) -> str:
    at = f" · at {_words(f['reached'])}" if f["reached"] else ""
    call = f" · unknown outcome of {visible(f['call'])}" if f["call"] else ""
    counted = f" · death {_plain(f['deaths'])} counted" if f["is_counted"] else ""
    return f"pid {_plain(f['pid'])}: {_words(f['cause'])}: {visible(f['proof'])}{at}{call}{counted}"


def _child_started(f: Facts, attempt: int) -> str:
    aside = f" · reserved {_caps(f['caps'])}" if f["caps"] else ""
    return f"{visible(f['agent'])} {_run(f['child'])}{_again(attempt)}{aside}"


def _child_ended(f: Facts, attempt: int) -> str:
    code = f" {visible(words(f['code']))}" if f["code"] else ""
    usd = "–" if f["unpriced_calls"] else _usd(f["usd_micro"])
    return f"{visible(f['agent'])} {_run(f['child'])} {_words(f['state'])}{code} · debited {_tokens(f)} · {usd}"


def _planned(f: Facts, attempt: int) -> str:
    key = f"key {visible(f['business_key'])}, {_words(f['on_conflict'])}" if f["business_key"] else ""
    behind = f"queued behind {_run(f['behind'])}" if f["behind"] else ""
    at = f"not before {_plain(str(f['start_at'])[:19])}" if f["start_at"] else ""
    before = f"start before {_plain(str(f['start_before'])[:19])}" if f["start_before"] else ""
    schedule = f"by schedule, planned for {_plain(str(f['planned_at'])[:16])}" if f["schedule"] else ""
    return " · ".join(part for part in (schedule, key, behind, at, before) if part)


def _admitted(f: Facts, attempt: int) -> str:
    after = f": {_run(f['after'])} has ended" if f["after"] else ""
    return f"its turn has come{after}"


def _carried_on(f: Facts, attempt: int) -> str:
    at = f" · at {_words(f['node'])}" if f["node"] else ""
    return f"{_words(f['how'])} of {_run(f['origin'])} · number {_plain(f['turn'])} since {_run(f['first'])}{at}"


def _effect(f: Facts) -> str:
    of = f" of {_run(f['of_run'])}" if f["of_run"] else ""
    return f"{visible(f['tool'])} at {visible(f['of_slot'])}{of}"


def _undo_begun(f: Facts, attempt: int) -> str:
    why = f"{_words(f['reason'])} {visible(words(f['code']))}".strip()
    n = f["effects"]
    return f"{_plain(n)} effect{'' if n == 1 else 's'} to undo, newest first; then the run ends as {why}"


def _screened(f: Facts, attempt: int) -> str:
    hooks = ", ".join(visible(each) for each in f["hooks"]) if isinstance(f["hooks"], list) else ""
    kept = f"{_plain(f['refused'])} refused, {_plain(f['replaced'])} replaced"
    return f"{_plain(f['pieces'])} pieces for {visible(f['to'])} · {kept} · {hooks or '—'}"


def _policy(f: Facts, _: Any) -> str:
    by = f"policy {visible(f['policy'])}, version {_plain(f['version'])}" if f["policy"] else "no policy matched"
    asks = f" · requires {visible(', '.join(f['queues']))}" if f["queues"] else ""
    return f"{_tool(f, 0)} · {visible(words(f['effect']))} · {by}{asks}"


def _withheld(f: Facts, attempt: int) -> str:
    hook = visible(f"{f['hook']}@{f['version']}")
    restored = ", restored" if f["is_restored"] else ""
    tone = ' class="bad"' if f["verdict"] == "refused" else ""
    return (
        f"<b{tone}>{_words(f['verdict'])}</b> by {hook}: {visible(f['reason'])} · {visible(f['source'])} to "
        f"{visible(f['to'])}, {_plain(f['size'])} characters{restored}"
    )


_WHY_FURTHER = {"away": "everyone is away", "amended": "it was before the change"}
EVENTS: dict[str, Callable[[Facts, int], str]] = {
    "RunCreated": _by,
    "StartPlanned": _planned,
    "RunAdmitted": _admitted,
    "VersionAssigned": assigned,
    "RunRenewed": lambda f, _: f"continues as {_run(f['successor'])} with an empty journal",
    "RunHandedOff": lambda f, _: f"continues as {_run(f['successor'])} of {visible(f['agent'])}",
    "RunCarriedOn": _carried_on,
    "RunMigrated": lambda f, _: f"{visible(f['of'])} → {visible(f['to'])}, by {visible(f['by'])}: {_words(f['how'])}",
    "RunForked": forked,
    "ForkMade": fork_made,
    "ContentErased": lambda f, _: f"by {visible(f['by'])}: {visible(f['reason'])}",
    "AnswerTakenOver": taken_over,
    "UndoRegistered": lambda f, _: f"can be undone by {visible(f['tool'])}",
    "UndoAsked": lambda f, _: f"{visible(words(f['code']))}, by {visible(f['by'])}: the run's effects are undone first",
    "UndoBegun": _undo_begun,
    "EffectUndone": lambda f, _: f"{_effect(f)} is undone",
    "EffectLeft": lambda f, _: f"{_effect(f)} kept, by {visible(f['by'])}",
    "RunClaimed": lambda f, _: f"epoch {_plain(f['epoch'])} by pid {_plain(f['pid'])} ({_plain(f['cause'])})",
    "VisitEntered": lambda f, _: f"{_words(f['node'])}, visit {_plain(f['visit'])}",
    "CheckpointSkipped": lambda f, _: f"at event {_plain(f['at'])}: damaged, continued from the previous one",
    "RunParked": lambda f, _: f"{_words(f['state'])}; released by the worker",
    "RunReleased": lambda f, _: visible(f["reason"]),
    "RunPaused": _by,
    "PauseRequested": _by,
    "RunResumed": _by,
    "CancelRequested": _by,
    "RunCancelled": _cancelled,
    "RunFailed": _code,
    "RunRetried": _by,
    "RunRequeued": lambda f, _: f"by {visible(f['by'])}, {'from its worker' if f['worker'] else 'for another worker'}",
    "RunCompleted": lambda f, _: "",
    "OperatorNeeded": lambda f, _: visible(words(f["reason"])),
    "WorkerLost": _lost,
    "BranchesOpened": lambda f, _: f"{_plain(f['branches'])} branches",
    "ValueRead": lambda f, _: _words(f["what"]),
    "ToolRead": _tool,
    "ToolInvoked": _invoked,
    "ToolReturned": _returned,
    "ToolFailed": lambda f, attempt: f"{_tool(f, attempt)} {_code(f, attempt)}",
    "ToolNotDispatched": _tool_and("provably not sent"),
    "ToolRedispatched": _tool_and("sent again"),
    "ToolOutcomeUnknown": _tool_and("may or may not have happened"),
    "ToolReconciled": _outcome_line,
    "OutcomeProposed": lambda f, attempt: f"{_outcome_line(f, attempt)}: a second person must confirm",
    "UpstreamAsked": lambda f, _: f"upstream check requested by {visible(f['by'])}",
    "UpstreamTold": lambda f, _: f"upstream says: {_plain(findings.UPSTREAM.get(f['answer'], f['answer']))}",
    "OutcomeWithdrawn": lambda f, _: f"proposal withdrawn by {visible(f['by'])}",
    "ToolAccepted": _tool,
    "ToolAnsweredLate": _late,
    "CallbackReceived": _tool,
    "CallbackArrivedLate": _tool,
    "ModelRequested": lambda f, _: f"{visible(f['model'])}, {_turn(f)}",
    "ModelResponded": lambda f, _: f"{_turn(f)} · {_plain(f['tokens_in'])} in, {_plain(f['tokens_out'])} out",
    "ModelFailed": _code,
    "ModelRouted": lambda f, _: f"{_plain(f['model'])} · reserved {_amounts(f)}",
    "ModelsChosen": lambda f, _: f"{_models(f)} · by {visible(f['by'])}",
    "TranscriptCompacted": lambda f, _: (
        f"{_plain(f['messages'])} messages summarised · about {_plain(f['tokens_before'])} tokens, "
        f"then {_plain(f['tokens_after'])}"
    ),
    "ContentScreened": _screened,
    "ContentWithheld": _withheld,
    "PolicyApplied": _policy,
    "CachedReadTaken": lambda f, _: (
        f"{_tool(f, 0)} · from the cache: read at {_plain(str(f['read_at'])[:19])} by {_run(f['run_read'])}"
    ),
    "ToolReadAnew": lambda f, _: f"{_tool(f, 0)} · read again: the cached value was too old",
    "AttributesSet": lambda f, _: f"{_attributes(f)} · by {visible(f['by'])}",
    "BudgetSet": lambda f, _: f"{_caps(f['caps'])} · by {visible(f['by'])}",
    "BudgetDebited": lambda f, _: _amounts(f) + (" · estimated: its answer was lost" if f.get("is_estimate") else ""),
    "BudgetExceeded": lambda f, _: f"{visible(words(f['resource']))}: {_plain(f['used'])} of {_plain(f['most'])} used",
    "WaitOpened": lambda f, _: f"{_plain(f['wait'])}, until {_plain(str(f['deadline'])[:19])}",
    "WaitResolved": lambda f, _: f"{_plain(f['wait'])}: {visible(words(f['resolution']))} by {visible(f['by'])}",
    "ChildStarted": _child_started,
    "ChildOf": lambda f, _: f"of {_run(f['parent'])}, slot {visible(f['parent_slot'])}{_again(f['parent_attempt'])}",
    "ChildEnded": _child_ended,
    "SignalReceived": lambda f, _: f"<b>{visible(f['name'])}</b> number {_plain(f['n'])}, sent by {visible(f['by'])}",
    "SignalCarried": lambda f, _: (
        f"<b>{visible(f['name'])}</b> number {_plain(f['n'])}, there {_plain(f['of_n'])}, sent by {visible(f['by'])}"
    ),
    "SignalTaken": lambda f, _: f"<b>{visible(f['name'])}</b> number {_plain(f['n'])}",
    "MessageReceived": lambda f, _: f"<b>{_words(f['name'])}</b>, message {_plain(f['n'])}, sent by {visible(f['by'])}",
    "ContextInjected": lambda f, _: f"by {visible(f['by'])}, as {_words(f['role'])}: {_context(f)}",
    "MessageHandled": lambda f, _: f"<b>{_words(f['name'])}</b>, message {_plain(f['n'])}: {_words(f['outcome'])}",
    "InputAnswered": lambda f, _: f"answered by {visible(f['by'])}, as {_words(f['role'])}",
    "ApprovalRequested": lambda f, _: f"{_plain(f['queue'])} · {_plan(f)}",
    "ApprovalTimed": lambda f, _: (
        f"{'calendar ' + visible(f['calendar']) + ', ' if f['calendar'] else ''}"
        f"if nobody decides: {_words(f['on_timeout'])}"
    ),
    "ApprovalReminded": lambda f, _: (
        f"reminder {'again ' if f['cause'] == 'no_deadline' else ''}before {_plain(str(f['deadline'])[:19])}"
    ),
    "ApprovalEscalated": lambda f, _: (
        f"escalated to <b>{visible(f['to'])}</b>: "
        f"{_WHY_FURTHER.get(f['cause'], 'deadline missed')}; until {_plain(str(f['deadline'])[:19])}"
    ),
    "ApprovalVoted": lambda f, _: f"{_words(f['verdict'])}, a vote of {visible(f['by'])} · {_plan(f)}",
    "ApprovalDecided": lambda f, _: f"{_words(f['verdict'])} by {visible(f['by'])} · {_plan(f)}",
    "InquiryMade": lambda f, _: (
        f"{visible(f['by'])} asks <b>{visible(f['to'])}</b>"
        f"{'; deadline paused, until ' + _plain(str(f['deadline'])[:19]) + ' at most' if f['deadline'] else ''}"
    ),
    "InquiryEnded": lambda f, _: (
        f"{_words(f['outcome'])} by {visible(f['by'])}"
        f"{'; deadline resumed, until ' + _plain(str(f['deadline'])[:19]) if f['deadline'] else ''}"
    ),
    "ApprovalDelegated": lambda f, _: f"{visible(f['by'])} delegates the request to <b>{visible(f['to'])}</b>",
    "DelegationEnded": lambda f, _: f"delegation ended by {visible(f['by'])}",
    "PlanAmended": lambda f, _: f"changed by {visible(f['by'])} · {_plan(f)}",
}
