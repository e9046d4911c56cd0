"""The pages and sockets for runs. Only URLs, template tags and the approvals' pages import from here."""
