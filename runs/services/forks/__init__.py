"""Beginning again within another run, or from its input: what that one did comes before who asks for it. The faces come
in here."""
