"""Whether, and how, a run goes on as one of another version of its agent."""
