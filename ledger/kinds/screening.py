"""The kinds of event that tell what became of content on its way to a model, a tool or a node. The others are in
`ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event

CONTENT_REFUSED = "content_refused"  # the code of a call, or of a model request, that was not let through


class ContentScreened(Event, fact="screened"):
    """Hooks looked at what was about to reach a model, a tool or the node, for the `n`-th time at its slot. `hooks` are
    those that were asked, as name@version; `pieces` how many there were, of which so many were `refused` or `replaced`.
    What isn't named in a ContentWithheld passed. Payload: what stands for a piece from here on, by its place."""

    n: int
    to: str
    hooks: list[str]
    pieces: int
    refused: int
    replaced: int


class ContentWithheld(Event, fact="withheld"):
    """A hook kept a piece back: it is `refused`, or `replaced` by something else. The content is told by its size in
    characters and a keyed digest only. `n` numbers them at their slot, `place` says which piece, `source` where it came
    from."""

    n: int
    place: str
    source: str
    to: str
    verdict: str
    hook: str
    version: str
    digest: str
    size: int
    reason: str
    is_restored: bool = False
