"""The Merkle tree hash of RFC 6962, section 2.1. Pure: no Django, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

# Leaves and inner nodes have different prefixes before they are hashed, so that a node can't be presented as a leaf.
LEAF, NODE = b"\x00", b"\x01"


def merkle_root(leaves: Iterable[bytes]) -> bytes:
    """Return the tree hash of these leaves, in this order. Without leaves, this is the hash of the empty string."""
    # Complete subtrees from the left, with their sizes. Two subtrees of equal size are merged into one.
    subtrees: list[tuple[int, bytes]] = []
    for leaf in leaves:
        size, node = 1, sha256(LEAF + leaf).digest()
        while subtrees and subtrees[-1][0] == size:
            node = sha256(NODE + subtrees.pop()[1] + node).digest()
            size *= 2
        subtrees.append((size, node))
    if not subtrees:
        return sha256(b"").digest()
    root = subtrees.pop()[1]
    while subtrees:
        root = sha256(NODE + subtrees.pop()[1] + root).digest()
    return root


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the proof that the leaf at `index` is in the tree of these leaves (RFC 6962, section 2.1.1).

    The proof lists, from the bottom up, the roots of the subtrees that are joined with the leaf's own subtree."""
    if len(leaves) <= 1:
        return []
    # The left subtree's number of leaves is the largest power of two below the total.
    half = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = leaves[:half], leaves[half:]
    if index < half:
        return [*inclusion_path(left, index), merkle_root(right)]
    return [*inclusion_path(right, index - half), merkle_root(left)]
