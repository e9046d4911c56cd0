"""The runs' pages and sockets. Only URLs, template tags and the approvals' pages import from here."""
