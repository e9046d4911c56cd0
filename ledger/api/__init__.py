"""Read-only HTTP API for journals, the ledger and people's acts."""
