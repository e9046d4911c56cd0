"""Bugs to seed in what operators hand to runs, in taking a run from its worker, and in what they say of workers and
hosts."""

from __future__ import annotations

from tests.crash.mutant import Mutant

CHANGES, NOTES, STANDING = (
    "runs/engine/messages/changes.py",
    "runs/engine/thinking/notes.py",
    "runs/engine/injecting/standing.py",
)
PATCHING, ACTS, LOOKING = (
    "runs/engine/injecting/patching.py",
    "runs/services/injecting/acts.py",
    "runs/services/injecting/looking.py",
)
REQUEUE, HOSTS, RULES = (
    "runs/services/fleet/requeueing.py",
    "runs/services/fleet/hosts.py",
    "runs/services/allowed/rules.py",
)
CHECKS = "ledger/verification/checks.py"
LOOP, DRAIN = "runs/workers/run_loop.py", "tests/runs/test_drain.py"
HANDED, BACK, DEAD = "tests/runs/test_injecting.py", "tests/runs/test_requeueing.py", "tests/fleet/test_declare_dead.py"

HANDED_OVER = [
    Mutant("what is handed before the first call is lost", CHANGES, "if event.place == ENTRY]", "if False]", f"{HANDED} -k just_entered"),
    Mutant("what is handed before the first call is taken twice", CHANGES, "if event.place == BETWEEN]", "if event.place <= BETWEEN]", f"{HANDED} -k just_entered"),
    Mutant("what is handed in a call is never taken over", CHANGES, "for x in changes_in(events) if x.place > BETWEEN", "for x in changes_in(events) if x.place > 99", f"{HANDED} -k seen_by_the_node"),
    Mutant("a replay takes over messages alone", "runs/engine/tape.py", "if isinstance(event, (e.MessageHandled, e.ContextInjected)):\n", "if isinstance(event, e.MessageHandled):\n", f"{HANDED} -k drives_it_again"),
    Mutant("a request that waits to go out yet is bound to what it was", "runs/engine/tape.py", 'in waiting if "message" in told else ()', "in ()", "tests/runs/test_injecting_waits.py"),
    Mutant("a model hears of it with the requests of before", NOTES, "tape.handled[: tape.asked_after.get(slot, len(tape.handled))]", "tape.handled", f"{HANDED} -k models_hear"),
    Mutant("a model hears it with each request anew", NOTES, "texts[self._heard :], max(self._heard, len(texts))", "texts, 0", f"{HANDED} -k models_hear"),
    Mutant("a node's own changes are not seen", STANDING, "found.states.get(place, found.last)", "begun", f"{HANDED} -k seen_by_the_node"),
    Mutant("a run of other code takes it", STANDING, "if at.fingerprint and not agent.is_own(at.fingerprint):", "if False:", f"{HANDED} -k other_code_wrote"),
    Mutant("a field that there is not is dropped without a word", PATCHING, "if nowhere := sorted(set(lost_of(wanted, fitting))):", "if nowhere := []:", f"{HANDED} -k does_not_fit"),
    Mutant("a secret goes on record", PATCHING, "if hidden := sorted(set(_hidden(wanted, fitting))):", "if hidden := []:", f"{HANDED} -k does_not_fit"),
    Mutant("nothing is a change", PATCHING, "    if not told:\n", "    if False:\n", f"{HANDED} -k does_not_fit"),
    Mutant("a patch is taken at any length", LOOKING, "    if size > MOST_BYTES:\n", "    if False:\n", f"{HANDED} -k too_much"),
    Mutant("it is handed to a run that has moved on", ACTS, "    if now != (seen.seq, seen.head) or now != (found.seq, found.head):\n", "    if False:\n", f"{HANDED} -k moved_on"),
    Mutant("a look is taken in the transaction of the answer", "runs/api/views.py", "seen_before=seen).id", "seen_before=None).id", "tests/api/test_injecting.py -k takes_long"),
    Mutant("a look is taken in the transaction of the newest", "runs/services/succession/chain.py", "within=nullcontext)", "within=transaction.atomic)", "tests/api/test_injecting.py -k takes_long"),
    Mutant("what was answered is looked at again", "runs/api/views.py", "        if key is not None and idempotency.kept_answer(", "        if False and idempotency.kept_answer(", "tests/api/test_injecting.py -k takes_long"),
    Mutant("what the look refuses is handed over", "runs/api/views.py", "                if isinstance(seen, DurableAgentsError):\n                    raise seen\n", "                if isinstance(seen, DurableAgentsError):\n                    return run_id\n", "tests/api/test_injecting.py -k look_refuses"),
    Mutant("it is handed over while a worker drives the run", RULES, '        return "A worker drives it: pause it first, and wait until it stands still."', "        return None", f"{HANDED} -k stands_still"),
    Mutant("who handed something over decides what comes of it", "runs/services/authority.py", "[*STOPPING, *FORKING, BUDGET, REQUEUE]", "[*STOPPING, *FORKING, BUDGET, REQUEUE, INJECT]", f"{HANDED} -k does_not_decide"),
    Mutant("verification knows nothing of what was handed over", CHECKS, '    "inject": (e.ContextInjected,), "requeue"', '    "requeue"', f"{HANDED} -k forged_one_is"),
    Mutant("what was handed over may stand alone", CHECKS, "            if not goes_on:\n", "            if False:\n", f"{HANDED} -k came_without_the_act"),
    Mutant("a worker that a run was taken from writes on", REQUEUE, "        head.lease = None\n", "        pass\n", f"{BACK} -k writes_no_more"),
    Mutant("a run that was given back is nobody's", REQUEUE, "    make_ready(run, now=act.now)\n", "", f"{BACK} -k writes_no_more"),
    Mutant("a run is given back without an incident", REQUEUE, "        incident.save(force_insert=True)\n", "", f"{BACK} -k writes_no_more"),
    Mutant("a run in the pool is given back again", REQUEUE, "        raise act.refuse(IN_POOL)\n", "        pass\n", f"{BACK} -k next_try"),
    Mutant("a drain is asked of anything", HOSTS, '    if process.kind != "worker":\n', "    if False:\n", f"{BACK} -k asked_once"),
    Mutant("anybody drains a worker", HOSTS, '    may_act(by, "drain a worker")\n', "", f"{BACK} -k asked_once"),
    Mutant("a run hears of the drain when its host has looked for more", LOOP, "self._loop.call_soon_threadsafe(self._ask_to_hand_over)", "pass", f"{DRAIN} -k looks_for_more"),
    Mutant("what is claimed while the drain is asked for is driven on", LOOP, "        if self._drain_at is not None:  # asked for while", "        if False:  # asked for while", f"{DRAIN} -k calls_nothing"),
    Mutant("a host that drains claims once more", LOOP, "self._drain_at is not None or room <= 0", "room <= 0", f"{DRAIN} -k looks_for_more"),
    Mutant("anybody declares a host dead", HOSTS, '    may_act(by, "declare a host dead")\n', "", f"{BACK} -k declare_a_host"),
    Mutant("a host that lives is declared dead", HOSTS, "    if alive := [p for p in processes if p.silence < SILENT_SECONDS]:\n", "    if alive := []:\n", f"{BACK} -k declare_a_host"),
    Mutant("a host is declared dead as it stood before", HOSTS, '.order_by("pk").select_for_update()', '.order_by("pk")', f"{DEAD} -k in_between"),
    Mutant("a worker does not hear that it is to let go", "runs/fleet/members.py", "is_drain_asked=bool(row[0]))", "is_drain_asked=False)", f"{BACK} -k next_beat"),
]  # fmt: skip
