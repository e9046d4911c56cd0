"""Forms from JSON schemas: fields (`fields.py`), reading a schema (`maker.py`), and the form (`form.py`)."""
