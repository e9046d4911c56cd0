"""Seeded bugs in what people do with a case before it is decided. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

CHANGED = "approvals/queues/changed.py"
AMEND, GATES, RULES, CALL = (
    "approvals/cases/amending.py",
    "runs/engine/steps/gates.py",
    "runs/engine/amending/record.py",
    "runs/engine/steps/logical_call.py",
)
REFUSED = "tests/console/test_refused_forms.py"
TOLD, ROWS, PAGE = "tests/engine/test_amending.py", "tests/approvals/test_amending.py", "tests/console/test_changes.py"
BESIDE, BESIDES = "tests/approvals/test_amending_beside.py", "tests/approvals/test_policies_besides.py"
FORMS, FORM, MAKER = "tests/console/test_forms_changed.py", "runs/console/forms/form.py", "runs/console/forms/maker.py"

CASES = [
    Mutant("what the node asked goes out under the yes to a change", CALL, "            self.replace(arguments)\n\n    def take", "            pass\n\n    def take", f"{TOLD} -k what_leaves"),
    Mutant("what doesn't fit the tool is sent as it was asked", GATES, "    return call.misfit or amending", "    return amending", f"{TOLD} -k does_not_fit"),
    Mutant("a yes given without knowing the amount is enough", GATES, "call.misfit or amending.became(record, call.tool.gate, call.args)", "call.misfit", f"{TOLD} -k knowing_the_amount"),
    Mutant("an amendment that was taken back still counts", RULES, "    return given if record.gate is not None and payload_of(record.gate).get(\"arguments\") == given else None", "    return given", f"{TOLD} -k taken_back"),
    Mutant("hooks never see what a person typed", "runs/engine/steps/arguments.py", "looks_before(call.record)", "0", f"{TOLD} -k hooks_look"),
    Mutant("a model is not told that a person changed its call", "runs/engine/thinking/loop.py", "    if found is None:\n        return {}\n    changes", "    if True:\n        return {}\n    changes", f"{TOLD} -k the_model_is_told"),
    Mutant("a node learns only of the last of two changes", RULES, "            first = merged[name][0] if name in merged else change.get(\"from\")", "            first = change.get(\"from\")", f"{TOLD} -k first_to_last"),
    Mutant("any field may be changed", AMEND, "        if name not in fields:\n            _refuse(name, \"may", "        if False:\n            _refuse(name, \"may", f"{ROWS} -k refused_by_name"),
    Mutant("the schema of what may be changed is not looked at", AMEND, "    if wrong := misfits(", "    if wrong := [] and misfits(", f"{ROWS} -k refused_by_name"),
    Mutant("a change of another plan than was read is made", AMEND, "    if plan_hash != approval.plan_hash:\n        raise", "    if False:\n        raise", f"{ROWS} -k who_may"),
    Mutant("whoever changed it has approved it, whatever it became", AMEND, "    if isinstance(found, No):", "    if False:", f"{ROWS} -k somebody_who_may"),
    Mutant("what was asked can still be approved after the change", AMEND, "    resolve(wait, \"amended\", by=by.ref, now=now)\n", "", f"{ROWS} -k exactly_what"),
    Mutant("an amendment is nobody's decision", AMEND, "    decision.save(force_insert=True)\n", "", f"{ROWS} -k exactly_what"),
    Mutant("what no store keeps is put in a call's place", "approvals/cases/views.py", "            if problems := unstorable({WITHIN: given}):\n                raise does_not_fit(problems, \"form\")\n", "", f"{PAGE} -k no_store_keeps"),
    Mutant("what nobody touched of a call goes out as a browser made it", "approvals/cases/views.py", "data=data, document=_now(opened), beside", "data=data, document=_now(opened) if data is None else None, beside", f"{PAGE} -k nobody_touched"),
    Mutant("a field that is emptied becomes what it is by itself", MAKER, "            field.empty = None\n", "            pass\n", f"{FORMS} -k emptied"),
    Mutant("a document that isn't there is filled with what nobody typed", MAKER, "is_unset = level.is_unset or (shown is None and is_nullable)", "is_unset = False", f"{FORMS} -k not_there"),
    Mutant("what no field shows of a call is lost with a change beside it", FORM, "self._around(field) | ", "", f"{FORMS} -k no_field_shows"),
    Mutant("nothing said is taken for a no", MAKER, "if kind == \"flag\" and (is_nullable or level.may_be_null):", "if False:", f"{FORMS}"),
    Mutant("a line takes the breaks out of what it shows", MAKER, "                field.give_room(text)\n", "                pass\n", f"{FORMS} -k nobody_touched"),
    Mutant("a tick that is taken away is still there", FORM, "(field.is_flag or is_nothing_said)", "(not field.is_flag and is_nothing_said)", f"{FORMS} -k tick"),
    Mutant("an emptied group is what it is by itself", FORM, "is_nothing_said=group.empty is Absent", "is_nothing_said=False", f"{FORMS} -k emptied_group"),
    Mutant("names of closed accounts are offered", "approvals/talk/shown.py", "WHERE u.is_active AND EXISTS (", "WHERE EXISTS (", "tests/approvals/test_inquiries.py -k names_that_are_offered"),
    Mutant("what is wrong stands at a form that nobody sent", "templates/approvals/calendar_form.html", "{% if sent %}{% field_error refused.at.justification \"k-why\" %}{% endif %}", "{% field_error refused.at.justification \"k-why\" %}", "tests/console/test_deadlines.py -k at_no_other"),
    Mutant("whoever signs in lands where there is no page", "ledger/web/page_base.py", "if _is_page(parts.path) else \"/\"", "if parts.path else \"/\"", "tests/console/test_acts.py -k sign_in_first"),
    Mutant("a new password may be the old one", "durableagents/identity/password_check.py", "if new == self.data.get(\"old_password\"):", "if False:", "tests/console/test_account.py -k what_is_wrong"),
    Mutant("what nobody can tell of a schema that is false breaks the answer", "runs/services/answer_words.py", "if one.schema_path and [one.schema_path[0]] == meant]", "if [one.schema_path[0]] == meant]", "tests/runs/test_answer_words.py -k true_or_false"),
    Mutant("what a form was filled with is lost in what it stands for", FORM, "if is_untouched and (self._keeps or not (field.had is Absent or self._is_there(field))):", "if is_untouched and self._keeps:", f"{FORMS} -k was_filled_with"),
    Mutant("a text that looks like a number becomes one", "runs/console/forms/fields.py", "if isinstance(shown, str) and self.read(shown) != shown:", "if False:", f"{FORMS} -k looks_like"),
    Mutant("null behind a reference is none", MAKER, "any(\"null\" in _types(self._followed(option)) for option in options)", "any(\"null\" in _types(option) for option in options if \"$ref\" not in schema)", f"{FORMS} -k behind_a_reference"),
    Mutant("two fields of a page have one name", FORM, " or field_name.partition(\".\")[0] == _OURS", "", f"{FORMS} -k called_the_same"),
    Mutant("what was typed is lost where somebody else decided before it was looked at", "approvals/cases/views.py", "            if not opened.is_open:\n                raise services.AlreadyDecided(opened.approval)\n", "", f"{PAGE} -k looks_second"),
    Mutant("a question that is cut can't be answered", "runs/console/questions.py", "if shown.form is not None and len(shown.form.values) >= MOST_FIELDS and put is not None:", "if False:", "tests/console/test_questions.py -k holds_itself"),
    Mutant("a refused act beside it empties a form", "ledger/templatetags/console.py", "return typed[name] if typed and name in typed else", "return typed.get(name, \"\") if typed else", "tests/console/test_deadlines.py -k beside_that_is_refused"),
    Mutant("one person gives both of the yeses that two queues are asked for", "approvals/queues/standing.py", "AND a.state = 'approved' AND a.queue <> this.queue", "AND a.state = 'none' AND a.queue <> this.queue", f"{BESIDES} -k one_person"),
    Mutant("a case doesn't say whom a policy asks after it", "approvals/votes/ahead.py", "    if approval.state != ApprovalState.OPEN or told is None:\n", "    if told is None or told:\n", f"{BESIDES} -k said_before"),
    Mutant("a decimal beyond its bounds is told to be no number", "runs/services/answer_words.py", "meant = of_its_kind if len(of_its_kind) == 1 else real", "meant = real", "tests/runs/test_answer_words.py -k misfit_is_told"),
    Mutant("what is wrong with the same again is told at no field of its form", "approvals/views.py", "Refused(\"decide\", seen(error), form.kept)", "Refused(\"decide\", error, form.kept)", "tests/approvals/test_granting_words.py -k place_of_its_field"),
    Mutant("a refusal leads to another form's field", "approvals/queues/labels.py", "fields = FIELDS.get(refused.act, {})", "fields = FIELDS[\"QueueLimits\"]", "tests/console/test_refused_words.py -k leads_to_its_field"),
    Mutant("a refused act beside it fills another form", "ledger/templatetags/console.py", "refused.typed if refused and refused.act == \"\".join(map(str, act)) else {}", "refused.typed if refused else {}", f"{REFUSED} -k form_of_a_queue"),
    Mutant("a refused form unticks its boxes", "ledger/templatetags/console.py", "is_on = typed.get(name, \"off\") != \"off\" if typed else bool(is_set)", "is_on = bool(is_set)", f"{REFUSED} -k form_of_a_queue"),
    Mutant("a refused retirement empties what the policy says", "approvals/policies/views.py", "            known[\"typed\"] = {}\n", "            pass\n", f"{REFUSED} -k form_of_a_policy"),
    Mutant("something else than was looked at is sent", "approvals/cases/views.py", "sent.texts.get(\"looked\") != _digest(wanted)", "False", f"{PAGE} -k not_looked_at"),
    Mutant("verification lets an amended question stand beside its decision", "approvals/verification.py", "                self.decided[amended.approval_id] = (line.seq, as_decision(amended), line.is_coded)\n", "                pass\n", f"{ROWS} -k exactly_what"),
    Mutant("a change leaves the yes of earlier stages standing", RULES, "if name not in (\"passed\", \"proof\")}", "if name != \"proof\"}", f"{BESIDE} -k put_to_all_of_them_anew"),
    Mutant("a change at a later stage goes on from there", RULES, "    return kept | ({\"stage\": 1, ", "    return kept | ({} if True else {\"stage\": 1, ", f"{BESIDE} -k put_to_all_of_them_anew"),
    Mutant("the words of before are typed for what it became", RULES, "if name != \"typed\"}", "if True}", f"{BESIDE} -k words_to_be_typed"),
    Mutant("people of a further queue change what was asked elsewhere", AMEND, "    if standing.queue:\n", "    if False:\n", f"{BESIDE} -k under_the_same_terms"),
    Mutant("the first stage is asked anew under another queue's terms", AMEND, "        said = _terms_of_the_first(approval, wait, queue, now, deadline)\n", "        pass\n", f"{BESIDE} -k first_stage"),
    Mutant("a change forgets what comes when nobody answers", AMEND, "    if course.terms is None:\n", "    if True:\n", f"{BESIDE} -k under_the_same_terms"),
    Mutant("a fork does not know what people had changed", "runs/engine/forks/evidence.py", "        if self.is_changed or not self.executed_hash:\n", "        if not self.executed_hash:\n", f"{BESIDE} -k may_take_what_came_of"),
    Mutant("another version is compared with what people sent", "runs/engine/recordings/replaying.py", "        known = asked_for(record) if", "        known = record.arguments if", f"{BESIDE} -k is_replayed"),
    Mutant("what waited without an end is denied at the first stage", "approvals/cases/amending.py", " and not known.course.is_endless:", ":", "tests/approvals/test_amending_beside.py -k without_an_end"),
    Mutant("a whole float in a plan is read as an integer", "runs/engine/canonical.py", "parse_int=_whole", "parse_int=int", "tests/approvals/test_large_numbers.py -k decided_about"),
    Mutant("what jsonb made of a number is damage", "approvals/verification.py", "!= as_hashed(getattr(row, name))]", "!= getattr(row, name)]", "tests/approvals/test_large_numbers.py -k decided_about"),
    Mutant("who had a hand in a child decides in its parent", "runs/services/authority.py", "            UNION ALL SELECT c.id, kin.is_before FROM runs_run AS c WHERE c.parent = r.id\n", "", "tests/approvals/test_hands_beside.py -k beside_it"),
    Mutant("what a fork's parent is a fork of is forgotten", "runs/services/authority.py", "            UNION ALL SELECT r.forked_from, true\n", "", "tests/approvals/test_hands_beside.py -k child_of_its_fork"),
    Mutant("a new name makes somebody another who stands in", CHANGED, "did.after ->> 'deputy' = me.id::text", "did.after ->> 'deputy' = ''", "tests/approvals/test_changed_who_decides.py -k new_name"),
    Mutant("the second person of a change made nothing", CHANGED, "AND r.action = 'rule_change_apply'", "AND false", "tests/approvals/test_changed_who_decides.py -k second_person"),
    Mutant("who gives themselves the role decides what was open", CHANGED, "AND a.action = 'role_given'", "AND false", "tests/approvals/test_changed_who_decides.py -k gave_themselves"),
    Mutant("who retires the policy decides alone", CHANGED, "ARRAY[did.before, did.after]", "ARRAY[did.after - 'agent']", "tests/approvals/test_changed_who_decides.py -k what_policies_ask"),
    Mutant("a policy about another agent keeps somebody from deciding", CHANGED, "IN ('', question.agent) AND", "IS NOT NULL AND", "tests/approvals/test_changed_who_decides.py -k what_policies_ask"),
    Mutant("who agreed to wider bounds uses them at once", "approvals/granting/acts.py", " or (\"queue_grants\", approval.queue) in agreed:", ":", "tests/approvals/test_granting_beside.py -k agreed_to"),
    Mutant("a role that a provider gives keeps its holder from deciding", CHANGED, "            AND split_part(a.by, ':', 1) IN ('user', 'key')\n", "", "tests/approvals/test_changed_who_decides.py -k gave_themselves"),
]  # fmt: skip
