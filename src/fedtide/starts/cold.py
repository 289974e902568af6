"""Cold start: every session begins with the untrained model."""

from dataclasses import dataclass

from fedtide.starts.base import Beginning, Begun, Start


@dataclass(frozen=True, kw_only=True)
class Cold(Start):
    """Begin with the untrained model, as if there had been no earlier sessions."""

    def begin(self, known: Beginning) -> Begun:
        return Begun(known.initial, {})
