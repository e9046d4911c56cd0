"""The answer to why a run doesn't move: cause, evidence, who must act, and actions, for console, API and shell.
Begin with `answer.py`; other packages add to it through the hooks in `acts.py`."""
