"""What pure tools read lately, kept for others: beside the record. Workers come in, and whoever forgets."""
