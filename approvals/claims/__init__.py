"""Who is on a case: *I'm on it*, for some minutes. It binds nothing and nobody; the inbox, the case and the API come in
by `acts` and `shown`."""
