"""A call of a fork: the fence before it, and what stands for it where nothing is sent. The steps come in here."""
