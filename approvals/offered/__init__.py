"""What may be done about a gate, for whoever asks `why`: registered when the app is ready."""
