"""The pages and sockets for runs. Only URLs, template tags and the pages of approvals import from here."""
