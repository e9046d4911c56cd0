"""The approvals that a gated call needs. The package is used by tool declarations and by the gate."""
