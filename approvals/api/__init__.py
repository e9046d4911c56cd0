"""HTTP API of approvals and the audit trail. Only the URL configuration imports from here."""
