"""Seeded bugs in four eyes on the rules. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

CHANGES, GUARD, GUARDS, KNOWN, VERIFIED, RIGHTS, RESETS, ADMIN = (
    "ledger/four_eyes/changes.py", "ledger/four_eyes/guard.py", "ledger/four_eyes/guards.py", "ledger/four_eyes/known.py",
    "ledger/four_eyes/verification.py", "durableagents/identity/rights.py", "durableagents/identity/resets.py",
    "durableagents/account_pages/admin_users.py",
)  # fmt: skip
INVITED, LISTED, ONCE = "durableagents/identity/invitations.py", "approvals/changes/listed.py", "runs/api/once.py"
PRICING = "runs/services/budgets/pricing.py"
DEPUTIES, AWAY = "approvals/queues/deputies.py", "approvals/deadlines/away.py"
STORY, STANDING_IN = "tests/approvals/test_rule_changes.py", "tests/approvals/test_rule_changes_deputies.py"
BESIDE, FORGED = "tests/approvals/test_rule_changes_beside.py", "tests/approvals/test_rule_changes_forged.py"

LOOKING = [
    Mutant("the second person reads minutes", "approvals/policies/words.py", "    if name in _WORDS:\n", "    if False:\n", "tests/approvals/test_rule_change_words.py -k read_in"),
    Mutant("what differs reads the same", "approvals/policies/words.py", "if was != now or not (before or after) else", "if True else", "tests/approvals/test_rule_change_words.py -k never_reads_the_same"),
    Mutant("a trial is not undone", KNOWN, "                raise _Undone\n", "                return told\n", f"{STORY} -k one_proposes_changes_nothing"),
    Mutant("whoever proposed it is the second person too", CHANGES, "    if by.person == row.person:\n", "    if False:\n", f"{STORY} -k not_the_second_person"),
    Mutant("a key is a person", CHANGES, "    if by.kind != \"user\" or by.person is None:\n", "    if by.person is None:\n", f"{STORY} -k key_counts_for_nobody"),
    Mutant("whoever agrees needs no right", CHANGES, "    _check_holds(by, known, \"You\")\n    return row, known, why\n", "    return row, known, why\n", f"{STORY} -k without_the_right"),
    Mutant("whoever proposed it may have lost the right", CHANGES, "    _check_holds(author, known, \"Whoever proposed it\")\n", "", f"{STORY} -k rights_count_as_they_are"),
    Mutant("what does the same is said to do something else", CHANGES, "    if [_difference(each) for each in told] != [", "    if [_difference(each) for each in told] or [", f"{STORY} -k another_state"),
    Mutant("something else is done than was read", CHANGES, "    if told != row.told:\n", "    if False:\n", f"{STORY} -k another_state"),
    Mutant("a change that was altered past us is done", CHANGES, "    if not row.is_genuine:\n", "    if False:\n", f"{STORY} -k forged_or_altered"),
    Mutant("two seconds put it in force", CHANGES, "RuleChange.objects.select_for_update().filter(pk=change_id)", "RuleChange.objects.filter(pk=change_id)", f"{STORY} -k only_one_of_many"),
    Mutant("what somebody wrote is lost where another was first", "templates/changes/change.html", "{% elif refused.text %}", "{% elif False %}", f"{STORY} -k sixty_four"),
    Mutant("whoever comes second isn't told when", CHANGES, '{row.ended_by}{at} already', '{row.ended_by} already', f"{STORY} -k sixty_four"),
    Mutant("a change lives for ever", CHANGES, "    if state == RuleChange.State.APPLIED and is_late(row, now):\n", "    if False:\n", f"{STORY} -k wait_for_ever"),
    Mutant("a row that was written past us loosens the rules", KNOWN, "    return frozenset(row.families if row.is_genuine else FAMILIES)\n", "    return frozenset(row.families)\n", f"{STORY} -k loosens_nothing"),
    Mutant("one person says that one person is enough", KNOWN, "    return bool(families) if family == GUARDS else family in families\n", "    return family in families\n", f"{STORY} -k is_changed_by_two_people"),
    Mutant("rules are guarded where roles are not", GUARDS, "    if wanted and \"roles\" not in wanted:\n", "    if False:\n", f"{STORY} -k roles_are_too"),
    Mutant("two are asked for where there is one", GUARDS, "            if _able(needs) < 2:\n", "            if _able(needs) < 1:\n", f"{STORY} -k no_two"),
    Mutant("an operator says which rules two people change", GUARDS, "    if by.auth != \"shell\" and not holds(", "    if False and not holds(", f"{STORY} -k says_which"),
    Mutant("an administrator gets a link into the second person's account", RESETS, "    check_door(user, by.person)\n", "", f"{STORY} -k opens_a_door"),
    Mutant("an administrator sets the second person's password", ADMIN, "        if is_protected(self.get_object(request, unquote(id)), request.user.pk):\n", "        if False:\n", f"{BESIDE} -k while_its_password"),
    Mutant("an administrator sets the password of whoever has just become a second person", ADMIN, "        if is_protected(user, self.request.user.pk):\n", "        if False:\n", f"{BESIDE} -k while_its_password"),
    Mutant("an administrator changes the address of whoever has just become a second person", ADMIN, "        if set(form.changed_data) & set(self.get_readonly_fields(request, row)):\n", "        if False:\n", f"{BESIDE} -k while_it_is_changed"),
    Mutant("one person adds a role that may something", ADMIN, "((\"permissions\",) if is_guarded(\"roles\") else ())", "()", f"{BESIDE} -k adds_no_role"),
    Mutant("nobody looks whether two people changed a rule", VERIFIED, "    if agreement.person in (None, row.person):\n", "    if False:\n", f"{STORY} -k verification_finds"),
    Mutant("nobody looks whether what was done is what was proposed", VERIFIED, "    if len(done) != len(row.told) or not all(map(_is_told, done, row.told, repeat(row.person))):\n", "    if False:\n", f"{STORY} -k verification_finds"),
    Mutant("a breaker that moves keeps people from agreeing to a limit", "runs/services/limits/acts.py", "    return {\"given\": limit.given}\n", "    return _shown(limit)\n", "tests/approvals/test_rule_changes_meanwhile.py -k breaker"),
    Mutant("runs line up by a limit that is only proposed", "runs/services/limits/acts.py", "    transaction.on_commit(lambda: _line_up(limit.key))\n", "    _line_up(limit.key)\n", "tests/approvals/test_rule_changes_meanwhile.py -k line_up"),
    Mutant("an invitation of before makes an administrator", INVITED, "    if gives(row) and is_guarded(\"roles\"):\n", "    if False:\n", f"{BESIDE} -k invitation_of_before"),
    Mutant("a link for a password of before is a door", RESETS, "    if maker is not None and is_protected(user, maker):\n", "    if False:\n", f"{BESIDE} -k link_for_a_password"),
    Mutant("whoever has a link says who made it", RESETS, " by {self.maker}\"\n", " by\"\n", f"{BESIDE} -k password_of_before"),
    Mutant("a proposal is taken back with the request's transaction", ONCE, "            return _WAITS, waiting(proposed)[0]\n", "            raise proposed\n", f"{BESIDE} -k kept_once"),
    Mutant("a role takes the administration away", RIGHTS, "        if is_admin != was_admin:", "        if True:", f"{BESIDE} -k keeps_what_they_may"),
    Mutant("nobody reads from when on a price counts", PRICING, "    after[\"begins\"] = \"at once\" if valid_from is None else row.valid_from.isoformat()\n", "", f"{BESIDE} -k price_counts"),
    Mutant("which version a ramp opens is cut off", KNOWN, " and last.isdecimal()", "", f"{BESIDE} -k ramp_opens"),
    Mutant("forged rows are as many as may be open", CHANGES, "    return sum(row.is_genuine for row in some(rows, MOST_OPEN, database_now())) >= MOST_OPEN\n", "    return True\n", f"{FORGED} -k however_many_are_forged"),
    Mutant("forged rows hide what waits", CHANGES, "        found = read(MOST_READ)\n", "        pass\n", f"{FORGED} -k however_many_are_forged"),
    Mutant("forged rows are read however many there are", CHANGES, "order_by(\"-made_at\")[:count]", "order_by(\"-made_at\")[:10**6]", f"{FORGED} -k no_more_rows"),
    Mutant("a row that is not genuine is shown", LISTED, "    if not row.is_genuine:\n        return Shown(\n", "    if False:\n        return Shown(\n", f"{FORGED} -k takes_no_page_away"),
    Mutant("roles that are none take People away", INVITED, "    return roles if isinstance(roles, list) and all(isinstance(role, str) for role in roles) else None\n", "    return roles\n", f"{FORGED} -k nobody_can_read"),
    Mutant("one person names another one's deputy where two have to", DEPUTIES, '@second("queues", needs=PERMISSION, moving=frozenset({"starts_at"}))\n', "", f"{STANDING_IN} -k alone_gives_nobody"),
    Mutant("one person names a deputy with another one's absence", AWAY, '@second("queues", needs=PERMISSION, moving=frozenset({"starts_at", "absence.deputy"}))\n', "", f"{STANDING_IN} -k alone_gives_nobody"),
    Mutant("a key that somebody else made names a deputy", DEPUTIES, 'return by.kind == "key" and is_guarded("queues")', "return False", f"{STANDING_IN} -k a_key_names_nobodys"),
    Mutant("a number that is drawn anew keeps people from agreeing to an absence", KNOWN, 'self.moving.isdisjoint((name, f"{of}.{name}"))', "name not in self.moving", f"{STANDING_IN} -k alone_gives_nobody"),
    Mutant("a deputy decides by roles that nobody has read", DEPUTIES, '{"decides_as": held, **begins(body.starts_at)}', "begins(body.starts_at)", f"{STANDING_IN} -k by_other_roles"),
    Mutant("whoever agreed to be a deputy decides by it what was asked before", "approvals/queues/changed.py", "OR did.action = 'deputy' AND", "OR did.action = 'deputy' AND did.whose IS NOT NULL AND", f"{STANDING_IN} -k neither_of_the_two"),
]  # fmt: skip
