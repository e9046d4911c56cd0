"""Inclusion proofs, which show that a run's events were sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from durableagents.contrib.seals.merkle import inclusion_path
from durableagents.contrib.seals.models import Seal, SealedHead, SealKey
from durableagents.contrib.seals.records import SealRecord
from durableagents.contrib.seals.verification import leaves_of
from ledger.errors import RecordDamaged

# If a run has more seals, proofs of later decisions are left out. The last proof is always included.
MAX_PROOFS = 50
MAX_KEPT = 4


def key_rows() -> list[dict[str, Any]]:
    """Return the public keys, each signed by the one before."""
    return [
        {
            "number": key.number,
            "public_key": bytes(key.public_key).hex(),
            "made_at": key.made_at.isoformat(),
            "reason": key.reason,
            "by": key.by,
            "signature": bytes(key.signature).hex(),
        }
        for key in SealKey.objects.order_by("number")
    ]


class Proofs:
    """The proofs of one export. Caches the leaves of the most recently used seals."""

    def __init__(self) -> None:
        self._leaves: dict[int, list[bytes]] = {}

    def of(self, run_id: UUID, head: int, decided: Sequence[int]) -> list[dict[str, Any]]:
        """Return the inclusion proofs for a run's events up to `head`. Raises RecordDamaged.

        They cover the first sealed head at or after each `decided` event, and the last sealed head.
        """
        sealed = SealedHead.objects.filter(run_id=run_id, seq__lte=head).order_by("seq")
        wanted = {each.seq: each for seq in decided if (each := sealed.filter(seq__gte=seq).first()) is not None}
        last = sealed.last()
        if last is not None:
            kept = sorted(set(wanted) - {last.seq})[: MAX_PROOFS - 1]
            return [self._proof(each) for each in (*(wanted[seq] for seq in kept), last)]
        return []

    def _proof(self, row: SealedHead) -> dict[str, Any]:
        leaves, seal = self._leaves_of(row.seal), Seal.objects.filter(pk=row.seal).first()
        if seal is None or row.leaf.data not in leaves:
            raise RecordDamaged(row.run_id, f"seal {row.seal} with its heads")
        index = leaves.index(row.leaf.data)
        return {
            "seal": _as_json(seal.record),
            "seq": row.seq,
            "hash": bytes(row.hash).hex(),
            "index": index,
            "path": [each.hex() for each in inclusion_path(leaves, index)],
        }

    def _leaves_of(self, number: int) -> list[bytes]:
        if number not in self._leaves:
            if len(self._leaves) >= MAX_KEPT:
                self._leaves.clear()
            self._leaves[number] = [leaf.data for leaf in leaves_of(number)]
        return self._leaves[number]


def _as_json(seal: SealRecord) -> dict[str, Any]:
    return {
        "number": seal.number,
        "at": seal.at.isoformat(timespec="microseconds"),
        "key": seal.key,
        "previous": seal.previous.hex(),
        "root": seal.root.hex(),
        "count": seal.count,
        "signature": seal.signature.hex(),
    }
