"""The reports' statements, one module per report."""
