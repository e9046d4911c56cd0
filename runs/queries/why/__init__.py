"""Why a run doesn't move, or what does, who must act, and what whoever asks may do to it: one answer for pages, API and
terminal. Read `answer.py` first; other rooms and apps add to it by `hooks.py`."""
