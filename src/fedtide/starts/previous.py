"""Previous: a session continues with the model that the last session ended with."""

from dataclasses import dataclass

from fedtide.starts.base import Beginning, Begun, Start


@dataclass(frozen=True, kw_only=True)
class Previous(Start):
    """Continue with the current model, as frameworks without sessions do."""

    def begin(self, known: Beginning) -> Begun:
        return Begun(self.opening(known), {})
