"""Seeded bugs in what is shown with a question. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

GIVEN, GATES, CALL, CONTEXT = (
    "runs/engine/gate/documents.py", "runs/engine/steps/gates.py", "runs/engine/steps/logical_call.py",
    "runs/engine/context.py",
)  # fmt: skip
STORE, STORED, DRAWN, DRAWING, SHOWN, CHECKING, SERVED, REDLINE, VERIFIED = (
    "approvals/store.py", *(f"approvals/documents/{name}.py" for name in (
        "stored", "drawn", "drawing", "shown", "checking", "served", "redline", "verification")),
)  # fmt: skip
ENGINE, CASES, BESIDE, OVER_HTTP, SLOW, WORDS = (
    "tests/engine/test_documents.py", "tests/approvals/test_documents.py", "tests/approvals/test_documents_beside.py",
    "tests/approvals/test_documents_served.py", "tests/approvals/test_documents_slow.py",
    "tests/approvals/test_redline.py",
)  # fmt: skip

DOCUMENTS = [
    Mutant("a replay may show other bytes", GATES, "    if recorded != now:\n", "    if False:\n", f"{ENGINE} -k other_bytes"),
    Mutant("a replay of a call may show other bytes", GATES, "    if record.gate is not None and not record.was_invoked:\n        shown", "    if False:\n        shown", f"{ENGINE} -k other_bytes"),
    Mutant("only names are bound", GIVEN, '"size": len(self.bytes), "sha256": self.digest}', '"size": 0, "sha256": ""}', f"{ENGINE} -k digest_of_what_is_shown"),
    Mutant("every plan tells of documents", GIVEN, "for each in documents]} if documents else {}", "for each in documents]}", f"{ENGINE} -k to_the_byte"),
    Mutant("two documents have one name", GIVEN, "if twice := next((name for name in names if names.count(name) > 1), None):", "if twice := None:", f"{ENGINE} -k too_many"),
    Mutant("names hide characters", GIVEN, "name == name.strip() and name.isprintable()", "name == name.strip()", f"{ENGINE} -k refused_by_name"),
    Mutant("what people changed is in the documents", CALL, "        args = self.args if self.unamended is None else self.unamended\n", "        args = self.args\n", f"{BESIDE} -k keeps_its_documents"),
    Mutant("the next question shows nothing", GATES, "    return documents.in_plan(call.documents) or carried\n", "    return documents.in_plan(call.documents)\n", f"{BESIDE} -k grant_carries"),
    Mutant("a gate's documents are left out", CONTEXT, "        return shown.made(tool.gate.documents, body, tool.name)\n", "        return ()\n", f"{ENGINE} -k gate_of_its_tool"),
    Mutant("the bytes are not stored", STORE, "    shown = [list(gate.contents), list(gate.contents.values())] if gate.contents else []\n    return (_STORE if gate.contents else \"\") + _OPEN, [", "    shown: list[Any] = []\n    return _OPEN, [", f"{CASES} -k is_stored_with_its_question"),
    Mutant("the same bytes again are refused", STORE, " ORDER BY d.digest ON CONFLICT DO NOTHING)", " ORDER BY d.digest)", f"{CASES} -k stored_once"),
    Mutant("nobody hashes what is stored", STORED, 'return "" if digest_of(content) == named.digest and len(content) == named.size else CHANGED', 'return ""', f"{CASES} -k not_its_digest"),
    Mutant("what can't be shown is approved", "approvals/services.py", "    def looked(approval_id: UUID, /, *args: P.args, **given: P.kwargs) -> T:\n        if given.get(\"verdict\", APPROVE) == APPROVE:\n", "    def looked(approval_id: UUID, /, *args: P.args, **given: P.kwargs) -> T:\n        if given.get(\"verdict\", \"\") is None:\n", f"{CASES} -k rejected_and_not_approved"),
    Mutant("what can't be shown is changed and approved", "approvals/cases/amending.py", "@shown_first\n@transaction.atomic\ndef amend(", "@transaction.atomic\ndef amend(", f"{BESIDE} -k does_not_count"),
    Mutant("a yes looks at what was drawn before", CHECKING, "    if content is None or unsound(named, content):\n        return unsound(named, content)\n", "    assert content is not None\n", f"{CASES} -k pages_are_at_hand"),
    Mutant("a yes needs only the first pages", DRAWN, "    while not facts.problem and (left := kept.undrawn(named, len(facts.pages))):\n", "    while False and (left := kept.undrawn(named, len(facts.pages))):\n", f"{CASES} -k every_page"),
    Mutant("bad luck is for ever", DRAWN, "for_ever=\"luck\" not in told", "for_ever=True", f"{CASES} -k takes_too_long"),
    Mutant("as many are drawn as are asked for", DRAWN, "            with _places:\n", "            if _places:\n", f"{OVER_HTTP} -k sent_away"),
    Mutant("a page waits for all that it shows", DRAWN, "        if not first.by(min(until, first.begun + PAGE_SECONDS)):\n", "        if not first.by(until + 99):\n", f"{SLOW} -k waits_a_moment"),
    Mutant("whoever looks again waits again", DRAWN, "min(until, first.begun + PAGE_SECONDS)", "until", f"{SLOW} -k is_waited_for_once"),
    Mutant("whoever looks has all of it drawn before anybody else's", DRAWN, "            while left and len(begun) < AT_ONCE:\n", "            while left:\n", f"{SLOW} -k waits_a_moment"),
    Mutant("documents are drawn for a no", "approvals/views.py", "actor(request, \"\"), is_shown_whole=False)", "actor(request, \"\"))", f"{SLOW} -k draws_nothing"),
    Mutant("what fails is tried each minute for ever", DRAWN, "= times + 1\n", "= 0\n", f"{SLOW} -k less_and_less"),
    Mutant("a yes waits for each page anew", CHECKING, "lambda: content, until)", "lambda: content)", f"{SLOW} -k so_long_and_no_longer"),
    Mutant("what is being drawn is drawn again", DRAWN, "    with _begins:\n        if (found := _under_way.get(at)) is not None:\n            return found\n", "    with _begins:\n", f"{SLOW} -k drawn_once"),
    Mutant("as many drawings are kept waiting as are asked for", DRAWN, "        if len(_under_way) >= MOST_UNDER_WAY:\n", "        if False:\n", f"{SLOW} -k not_taken_in"),
    Mutant("what is being drawn counts as shown", SHOWN, "    problems += [f\"{each.named.name}: {DRAWING}\" for each in shown if each.is_drawing]\n", "", f"{SLOW} -k reads_itself_again"),
    Mutant("a page never comes back to what is being drawn", "templates/approvals/documents.html", " data-lapses=\"1\"", "", f"{SLOW} -k reads_itself_again"),
    Mutant("a browser keeps the pages of a contract", SERVED, "\"Cache-Control\": \"no-store\"", "\"Cache-Control\": \"private\"", f"{OVER_HTTP} -k no_browser_keeps"),
    Mutant("the drawing process has our environment", DRAWN, "env={}, cwd", "env=None, cwd", f"{OVER_HTTP} -k has_nothing"),
    Mutant("the drawing process writes files", DRAWING, "(resource.RLIMIT_FSIZE, 0),", "(resource.RLIMIT_FSIZE, 1 << 40),", f"{OVER_HTTP} -k has_nothing"),
    Mutant("a bomb is unpacked", DRAWING, "MOST_PIXELS_GIVEN = 40_000_000", "MOST_PIXELS_GIVEN = 900_000_000", f"{CASES} -k rejected_and_not_approved"),
    Mutant("specks are shown as pages", DRAWING, "    if scale < LEAST_SCALE:\n", "    if False:\n", f"{CASES} -k rejected_and_not_approved"),
    Mutant("specks are shown as pictures", DRAWING, "    if shrink < LEAST_SCALE and shrink * min(seen.size) < LEAST_WIDTH:\n", "    if False:\n", f"{CASES} -k rejected_and_not_approved"),
    Mutant("the first of several pictures is enough", DRAWING, 'if getattr(opened, "n_frames", 1) != 1:', "if False:", f"{CASES} -k rejected_and_not_approved"),
    Mutant("what lets light through is drawn on white", DRAWING, "behind.paste((190, 190, 190), (x, y), grey)", "behind.paste((255, 255, 255), (x, y), grey)", f"{OVER_HTTP} -k pass_for_nothing"),
    Mutant("a picture is shown as it lay", DRAWING, "seen = _on_squares(ImageOps.exif_transpose(opened))", "seen = _on_squares(opened)", f"{OVER_HTTP} -k but_what_is_seen"),
    Mutant("a document's original is a page of ours", SERVED, 'content_disposition_header(True, named.name)', 'content_disposition_header(False, named.name)', f"{OVER_HTTP} -k runs_nothing"),
    Mutant("a document may run scripts", SERVED, "frame-ancestors 'none'; sandbox\"", "frame-ancestors 'none'\"", f"{OVER_HTTP} -k runs_nothing"),
    Mutant("other bytes are sent", SERVED, "    if content is None or unsound(named, content):\n        raise NotShown(unsound(named, content), named.name)\n    kind", "    assert content is not None\n    kind", f"{CASES} -k not_its_digest"),
    Mutant("documents are for whoever sees that something is asked", "approvals/queues/sight.py", "    if not reads(approval):\n        raise PayloadsHidden(approval.run_id)\n", "", f"{OVER_HTTP} -k nobody_else"),
    Mutant("documents are for everybody who is signed in", "approvals/queues/sight.py", "    if approval is None or not is_shown(approval, held):\n        raise NotFound(\"approval\", approval_id)\n    if not reads", "    if approval is None:\n        raise NotFound(\"approval\", approval_id)\n    if not reads", f"{OVER_HTTP} -k nobody_else"),
    Mutant("what went is not told", REDLINE, "        for what in (REMOVED, ADDED):\n            if text", "        for what in (ADDED,):\n            if text", f"{WORDS} -k all_of_both"),
    Mutant("texts are compared however long it takes", REDLINE, "        if patience.left < 0:\n            return None\n", "", f"{WORDS} -k past_a_bound"),
    Mutant("each change of a text is compared as long as a whole one", REDLINE, "    patience = patience or Patience()\n", "    patience = Patience()\n", f"{WORDS} -k used_up"),
    Mutant("what was taken away is not told", SHOWN, "    return shown + gone, problems[0]", "    return shown, problems[0]", f"{CASES} -k word_by_word"),
    Mutant("a forged text stands for the one before", SHOWN, "is_sound = content is not None and not unsound(self.was, content) and is_text(content)", "is_sound = content is not None and is_text(content)", f"{CASES} -k before_may_be_gone"),
    Mutant("verification passes over documents", VERIFIED, "    for n, named in enumerate(listed, 1):\n", "    for n, named in enumerate(listed[:0], 1):\n", f"{CASES} -k not_its_digest"),
    Mutant("verification passes over a row's list", VERIFIED, "    if row.documents != told:\n", "    if False:\n", f"{CASES} -k list_in_the_row"),
]  # fmt: skip
