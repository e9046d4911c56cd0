"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from tests.roles import EVERY

API = [
    (
        "POST",
        EVERY,
        """
        api-inquiries api-inquiry-answer api-inquiry-withdraw api-delegations api-delegation-end
        api-approval-claim api-approval-release
        """,
    ),
]
ACT = [
    (EVERY, "case_answers inquiry_withdrawals delegation_ends"),
    ({"approver_finance", "approver_legal"}, "inquiries delegations claims releases"),
]
