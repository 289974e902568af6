"""Cold start: every session begins with the untrained model."""

from dataclasses import dataclass

from fedtide.starts.base import Beginning, Begun, Start


@dataclass(frozen=True, kw_only=True)
class Cold(Start):
    """Forget everything."""

    def begin(self, known: Beginning) -> Begun:
        return Begun(known.initial, {})
