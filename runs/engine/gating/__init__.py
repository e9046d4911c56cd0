"""Gates: what approvals a call needs. Used by tools and by the gate steps."""
