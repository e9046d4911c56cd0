"""HTTP layer of the sandbox: pages, JSON, problem documents, and parsing of bodies and fields."""
