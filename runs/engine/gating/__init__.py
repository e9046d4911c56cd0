"""The approvals that a gated call needs. Used by tool declarations and by the gate."""
