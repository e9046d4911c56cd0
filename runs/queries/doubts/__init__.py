"""What helps whoever has to say what became of a call: where the other system shows it, and what people said of others
like it."""
