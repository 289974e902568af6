"""Cold start: every session begins with the untrained model."""

from dataclasses import dataclass

from fedtide.core.errors import require
from fedtide.starts.base import Beginning, Begun, Start


@dataclass(frozen=True, kw_only=True)
class Cold(Start):
    """Begin with the untrained model, as if there had been no earlier sessions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        must = "empty with kind 'cold', which uses no earlier model"
        require(not self.archive, "start.archive", must, self.archive)

    def begin(self, known: Beginning) -> Begun:
        return Begun(known.initial, {})
