"""Documents in a case: kept by the digest of their bytes, and shown to whoever decides. `brief`, deciding, verification
and the faces come in."""
