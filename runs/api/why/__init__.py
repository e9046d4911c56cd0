"""Why a run doesn't move, over HTTP."""
