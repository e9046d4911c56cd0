"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from tests.roles import EVERY

READ = [
    (EVERY, "password account second_factor"),
]
ACT = [
    (
        EVERY,
        """
        password account_session_ends account_key_revocations second_factor factor_removals recovery_codes
        sign_in_links sign_in_removals passkeys passkey_new passkey_names passkey_removals
        """,
    ),
]
OPEN = {"sign_in_code", "sign_in_factor", "sso", "sso_callback", "passkey_sign_in"}
# Only with a link: see test_setup.py, test_invitations.py, test_resets.py.
LINKS = {"setup_claim": "/setup/x", "invited": "/invited/x", "reset": "/reset", "reset_set": "/reset/x/y"}
# For administrators only, whatever roles someone has.
ADMIN_READ = {"setup", "people", "person"}
ADMIN_ACT = {
    *("invitations", "invitation_revocations", "person_session_ends", "person_reset_links", "person_own_keys"),
    *("person_payloads", "role_payloads", "person_roles"),
}
# For those an administrator allows.
ALLOWED = {"account_keys"}
ELSEWHERE = {*LINKS, *ADMIN_READ, *ADMIN_ACT, *ALLOWED}
