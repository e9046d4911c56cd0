"""Seeded bugs in who comes in and stays, in what passkeys sign, and in what devices are told. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

SIGNED, FOUND, CHECKING, SERVICES, WIRE, OWN = (
    "approvals/passkeys/signed.py", "approvals/passkeys/verification.py", "approvals/stepup/checking.py",
    "approvals/services.py", "durableagents/signin/webauthn.py", "durableagents/signin/passkeys.py",
)  # fmt: skip
PHONES, STORY, DOOR, TOLD = (
    "approvals/notices/phones.py", "tests/approvals/test_passkeys.py", "tests/signin/test_passkeys.py",
    "tests/approvals/test_phones.py",
)  # fmt: skip
PASSWORD, ADMIN, LINKS, ACCOUNT, SESSIONS, PAGES = (
    "durableagents/identity/own_password.py", "durableagents/account_pages/admin_users.py",
    "durableagents/signin/admin_pages.py", "tests/console/test_account.py", "tests/console/test_sessions.py",
    "tests/approvals/test_phones_pages.py",
)  # fmt: skip

PASSKEYS = [
    Mutant("what a passkey signed for one plan is a yes to another", CHECKING, "or by.person is None or about(signed.terms) != right:", "or by.person is None:", f"{STORY} -k signed_for_another_question"),
    Mutant("what a passkey signed isn't kept", SERVICES, "    if signed is not None and proof is not None and \"assertion\" in proof:\n", "    if False:\n", f"{STORY} -k kept_beside_it"),
    Mutant("what a passkey signed is good twice", CHECKING, "    if Assertion.objects.filter(challenge=signed.challenge).exists():\n", "    if False:\n", f"{STORY} -k good_once"),
    Mutant("a device need not verify who holds it to say yes or to sign in", SIGNED, "    if not device.is_user_present() or not device.is_user_verified():\n", "    if not device.is_user_present():\n", f"{DOOR} -k without_a_finger"),
    Mutant("a device need not verify who holds it when it is set up", WIRE, "UserVerificationRequirement.REQUIRED}", "UserVerificationRequirement.PREFERRED}", f"{DOOR} -k did_not_verify"),
    Mutant("a challenge is good for whatever page comes with it", WIRE, "    if about(terms) != what:\n", "    if False:\n", f"{DOOR} -k good_once_for_its_person"),
    Mutant("a challenge lives for ever", WIRE, "    if not 0 <= age <= LIVES_SECONDS:\n", "    if False:\n", f"{DOOR} -k good_once_for_its_person"),
    Mutant("an answer that was seen signs in once more", WIRE, "        throttle.count(_once, terms[\"nonce\"])\n", "        pass\n", f"{DOOR} -k good_for_nobody_else"),
    Mutant("what was signed on another site is taken", SIGNED, "    if client.origin != signed.origin or client.cross_origin:\n", "    if False:\n", f"{DOOR} -k elsewhere_opens_nothing"),
    Mutant("that a passkey was used to sign in is a yes", CHECKING, "or by.proved_by == PASSKEY or wanted", "or wanted", f"{STORY} -k sign_in_is_no_word"),
    Mutant("the engine uses a passkey's yes without what it signed", "runs/engine/gate/proof.py", "    if wanted.within and told.get(\"by\") == PASSKEY and not isinstance(told.get(\"assertion\"), str):\n", "    if False:\n", f"{STORY} -k engine_uses"),
    Mutant("a passkey that is moved to another account opens that", "durableagents/signin/sealing.py", "of \" + _whose.get().encode()", "of \"", "tests/signin/test_passkeys_elsewhere.py -k puts_into_the_table"),
    Mutant("a copy of a device signs in", OWN, "        if cursor.rowcount != 1:\n", "        if False:\n", f"{DOOR} -k counts_back"),
    Mutant("nobody asks whose key it was", FOUND, "        elif told := _not_theirs(row, decision.at):\n", "        elif told := \"\":\n", f"{STORY} -k key_of_their_own"),
    Mutant("nobody misses what was signed", FOUND, "        yield f\"{what}: what its passkey signed is not kept\"\n", "        return\n", f"{STORY} -k part_of_it"),
    Mutant("nobody looks what it was signed for", FOUND, "        if not is_for_it:\n", "        if False:\n", f"{STORY} -k swapped"),
    Mutant("nobody looks whether the signature holds", FOUND, "        if problem:\n", "        if False:\n", f"{STORY} -k part_of_it"),
    Mutant("with the last factor the recovery codes stay", "durableagents/signin/factors.py", "    if not has_factor(user):\n        Authenticator", "    if False:\n        Authenticator", f"{DOOR} -k recovery_codes_go"),
    Mutant("a device that somebody wrote into the table is told", PHONES, "    return \"\" if row.is_genuine else \"none of our processes wrote the device\"\n", "    return \"\"\n", f"{TOLD} -k none_of_our_processes"),
    Mutant("verification passes over devices", "approvals/queues/verification.py", "    Device: lambda row: f\"device {row.pk}\",\n", "", f"{TOLD} -k none_of_our_processes"),
    Mutant("a device that is gone is told on", PHONES, "    if outcome.is_gone:\n", "    if False:\n", f"{TOLD} -k mean_that_there_is_nobody"),
    Mutant("a device is told without TLS", PHONES, "        if parts.scheme != \"https\":\n", "        if False:\n", f"{TOLD} -k http_is_refused"),
    Mutant("who signs out is told on", "durableagents/views.py", "        devices.signed_out(request, response)\n", "", "tests/approvals/test_phones_pages.py -k signing_out"),
    Mutant("a new password leaves other devices told", "durableagents/identity/signed_in.py", "    phones.end_all(user_id, but=device_token(request))\n", "", "tests/approvals/test_phones_pages.py -k ends_other_devices"),
    Mutant("a password that was set meanwhile is lost", PASSWORD, "is_active=True, password=user.password)", "is_active=True)", f"{ACCOUNT} -k newly_opened"),
    Mutant("a closed account gets a password", PASSWORD, "pk=user.pk, is_active=True, ", "pk=user.pk, ", f"{ACCOUNT} -k newly_opened"),
    Mutant("a new password gives back what was taken meanwhile", PASSWORD, "            row.save(update_fields=[\"password\"])\n", "            user.save()\n", f"{ACCOUNT} -k changed_meanwhile"),
    Mutant("a password under the administration gives back what was taken meanwhile", ADMIN, "        user.save(update_fields=[\"password\"])\n", "        self.user.password = kept\n        self.user.save()\n", f"{ACCOUNT} -k changes_nothing_else"),
    Mutant("a name under the administration gives an old password back", ADMIN, "        obj.save(update_fields=[each.name for each in User._meta.concrete_fields if each.name in form.changed_data])\n", "        obj.save()\n", f"{ACCOUNT} -k under_admin_leaves"),
    Mutant("a password that an administrator sets leaves devices told", ADMIN, "            signed_in.end_everywhere(user.pk)\n", "            signed_in.end_all(user.pk)\n", f"{PAGES} -k way_in_is_cut"),
    Mutant("a session that was ended goes on under another key", "durableagents/identity/people.py", "            if before and is_somebodys and not leave(before):\n", "            if False:\n", f"{SESSIONS} -k while_it_changes"),
    Mutant("who sets a factor up in a session that is ended leaves the others in", "durableagents/signin/views_factor.py", "        signed_in.end_elsewhere(user.pk, request)  # whoever is in by the password alone\n        door.grown(request, factors.TOTP)\n", "        door.grown(request, factors.TOTP)\n        signed_in.end_elsewhere(user.pk, request)\n", "tests/signin/test_sessions.py -k sets_a_factor_up"),
    Mutant("a session gets another key at the moment at which it is ended", "durableagents/identity/signed_in.py", " ORDER BY key FOR UPDATE\"", "\"", f"{SESSIONS} -k at_the_moment"),
    Mutant("a link for a password outlives the rights of whoever made it", "durableagents/identity/resets.py", "    if maker and not User.objects.filter(pk=maker, is_superuser=True, is_active=True).exists():\n", "    if False:\n", "tests/console/test_resets.py -k rights_of_whoever"),
    Mutant("who came in by what one unlinks stays", "durableagents/signin/views_factor.py", "            signed_in.end_elsewhere(who(request).pk, request)  # they may", "            pass  # they may", "tests/signin/test_sso.py -k by_what_is_unlinked"),
    Mutant("who came in by what an administrator unlinks stays", LINKS, "        signed_in.end_for(obj.user_id, request)", "        pass", "tests/signin/test_sso.py -k administrator_unlinks"),
    Mutant("who came in by what is unlinked in the list stays", LINKS, "            signed_in.end_for(person, request)\n", "            pass\n", "tests/signin/test_sso.py -k administrator_unlinks"),
    Mutant("half a character breaks the door", WIRE, "        json.dumps(found, ensure_ascii=False).encode()", "        pass", f"{DOOR} -k half_a_character_anywhere"),
    Mutant("an origin of half a character breaks the page that tells it", SIGNED, "{str(client.origin)[:100]!a}", "{str(client.origin)[:100]}", f"{DOOR} -k origin_of_half"),
    Mutant("a factor whose row nobody can read breaks the door", "durableagents/signin/sealing.py", "    if not isinstance(row.data, dict):\n", "    if False:\n", "tests/signin/test_second_factor.py -k nobody_can_read"),
    Mutant("recovery codes that nobody can read break the page", "durableagents/signin/factors.py", "    if \"seed\" not in data or \"migrated_codes\" in data:\n", "    if False:\n", "tests/signin/test_second_factor.py -k nobody_can_read"),
    Mutant("what is recorded of devices can't be asked for", "approvals/trail.py", " \"device\", \"device_end\",\n", "\n", "tests/approvals/test_trail.py -k can_be_asked_for"),
    Mutant("somebody else's device is told", PHONES, "    if row.person != person:\n", "    if False:\n", f"{TOLD} -k names_somebody_else_s"),
    Mutant("more devices at once than there may be", PHONES, "    User.objects.select_for_update().get(pk=by.person)\n", "", "tests/approvals/test_phones_beside.py -k ten_are_enough"),
    Mutant("one device of two people at once breaks", PHONES, "        cursor.execute(_ONE_AT_A_TIME, [digest])\n", "        pass\n", "tests/approvals/test_phones_beside.py -k twice_at_once"),
    Mutant("what one was told is told to who has the browser now", "durableagents/account_pages/devices.py", "    phones.left(device_token(request), now_of=user.pk)\n", "    pass\n", "tests/approvals/test_phones_pages.py -k somebody_else"),
    Mutant("what is sent twice is shown twice", "approvals/notices/phones.py", '{**payload, "tag": message.hex}', "payload", f"{TOLD} -k is_gone_ends"),
    Mutant("a push service tells long news from short", "approvals/push/encryption.py", "RECORD, LENGTH = 4096, 2560", "RECORD, LENGTH = 4096, 1024", f"{TOLD} -k of_the_same_length"),
    Mutant("a lock screen shows the amount", "approvals/notices/words.py", "    title = f\"{lead}: {told['What']}\" if \"What\" in told else first.subject\n", "    title = first.subject\n", f"{TOLD} -k no_more"),
    Mutant("a message's length tells what it says", "approvals/push/encryption.py", "b\"\\x02\" + bytes(max(0, length - len(message)))", "b\"\\x02\"", f"{TOLD} -k of_one_length"),
]  # fmt: skip
