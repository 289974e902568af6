"""Previous: a session continues with the model that the last session ended with."""

from dataclasses import dataclass, field

from fedtide.starts.base import Beginning, Begun, Start
from fedtide.starts.trigger import Always, Trigger


@dataclass(frozen=True, kw_only=True)
class Previous(Start):
    """Continue with the current model, as frameworks without sessions do."""

    trigger: Trigger = field(default_factory=Always)  # nothing needs to be known of clients

    def begin(self, known: Beginning) -> Begun:
        return Begun(self.opening(known), {})
