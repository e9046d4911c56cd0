"""Why a run doesn't move, or what does, who must act, and the available actions: one answer for console, API and shell.
Begin with `answer.py`; other packages add to it through the hooks in `acts.py`."""
