"""Forms from JSON schemas: the fields (`fields.py`), how a schema is read (`maker.py`), and the form (`form.py`)."""
