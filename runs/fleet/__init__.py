"""Who is alive, what runs where, and what each recovery was. Services, workers and faces may read; only workers write
here."""
