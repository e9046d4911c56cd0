"""Four eyes on the rules: who changes what others may do, or what counts, proposes it, and a second person puts it in
force."""
