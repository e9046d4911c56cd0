"""What the sandbox says over HTTP: pages, JSON, problem documents, and the reading of bodies and fields."""
