"""Average: a session begins with the unweighted mean of the final models of earlier sessions."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from fedtide.core.errors import require
from fedtide.core.layout import Layout
from fedtide.starts.archive import All, Archive, Diverse, Past, Retention
from fedtide.starts.base import Beginning, Begun, Start


@dataclass(frozen=True, kw_only=True)
class ArchiveAverage(Start):
    """Begin with the mean of the archived models; all sessions after the pilot count the same."""

    archives: ClassVar[bool] = True
    keep: Retention = field(default_factory=All)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = not isinstance(self.keep, Diverse)
        require(
            known,
            "start.keep",
            "'all' or 'last', because this start computes no gradients",
            "diverse",
        )

    def begin(self, known: Beginning) -> Begun:
        if not known.archive.past:
            return Begun(self.opening(known), {})
        count = len(known.archive.past)
        weights = torch.full((count,), 1 / count)
        facts = {
            "start_weights": weights.tolist(),
            "start_from": [past.session for past in known.archive.past],
            "stored_floats": known.archive.floats,
        }
        return Begun(known.archive.mixed(weights, known.initial), facts)

    def store(self, archive: Archive, past: Past, layout: Layout) -> Archive:
        if past.session < self.P:
            return archive
        return archive._replace(past=self.keep.added(archive.past, past, lambda a, b: 0.0))
