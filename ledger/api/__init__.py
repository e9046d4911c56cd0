"""The journal, the ledger and what people did, over HTTP, read only."""
