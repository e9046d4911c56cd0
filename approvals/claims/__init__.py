"""Claims on cases (*I'm on it*) for some minutes. They bind nobody."""
