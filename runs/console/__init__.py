"""The runs' pages and sockets. Nobody imports from here but the addresses, template tags and approvals' pages."""
