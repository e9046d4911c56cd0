"""The common ground of every app's pages and API, which knows no app: errors, roles, strict JSON, text safety,
cursors."""
