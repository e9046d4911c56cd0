"""One agent version over HTTP, with its manifest and its fingerprint. From outside: `views`, by the addresses."""
