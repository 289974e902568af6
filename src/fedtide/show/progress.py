"""How far a run or a study has come, in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.line import Line, Progress

SECONDS = 0.25  # between two pictures

Watch = Callable[[Any], None]  # of lines of a journal, or of Progress


@contextmanager
def followed(watch: Watch | None, rounds: int, scale: Scale = ACCURACY) -> Iterator[Watch]:
    """`watch` itself or, if there is none, a bar over all rounds; outside of notebooks nothing is shown."""
    if watch or not in_notebook():
        yield watch or (lambda news: None)
        return
    bar = Bar(rounds, scale)
    try:
        yield bar.watch
    finally:
        bar.close()


def in_notebook() -> bool:
    """Does this process belong to a notebook, whose cells show what is displayed?"""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return hasattr(shell, "kernel")


class Bar:
    """A progress bar with the last score, which is replaced as rounds end and removed at the end."""

    def __init__(self, rounds: int, scale: Scale) -> None:
        from IPython.display import HTML, display

        self._html, self._rounds, self._done, self._scale = HTML, rounds, 0, scale
        self._begun, self._shown, self._words = monotonic(), 0.0, ""
        self._handle = display(HTML(self.picture()), display_id=True)

    def watch(self, news: Line | Progress) -> None:
        """A round has ended."""
        self._done += 1
        line = news.line if isinstance(news, Progress) else news
        if (score := self._scale.value(line)) is not None:
            self._words = f"{self._scale.name} {self._scale.text(score)}"
        if monotonic() - self._shown > SECONDS:
            self._shown = monotonic()
            self._handle.update(self._html(self.picture()))

    def picture(self) -> str:
        """The bar as HTML."""
        left = (monotonic() - self._begun) / max(1, self._done) * (self._rounds - self._done)
        said = [f"round {self._done} of {self._rounds}", self._words]
        said += [f"{left:.0f} s left"] if self._done else []
        bar = f"<progress value='{self._done}' max='{self._rounds}'></progress>"
        return f"{bar} {', '.join(filter(None, said))}"

    def close(self) -> None:
        """Remove the bar: results follow."""
        self._handle.update(self._html(""))
