"""Documents of a case, stored by the digest of their bytes and shown to deciders."""
