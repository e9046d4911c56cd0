"""Code shared by the pages and API of every app: errors, roles, strict JSON, text safety, cursors."""
