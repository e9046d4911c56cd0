"""Passkey signatures of approvals, stored with the decision and verified with the run. Independent of the rest of
approvals."""
