"""Wall time of a round, by phase."""

from time import perf_counter


class Timer:
    """Every `lap` books the time since the last one under a name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._last, 6)
        self._last = now

    def part(self, name: str, of: str, seconds: float) -> None:
        """Book so much of another phase under a name of its own."""
        self.seconds |= {name: round(seconds, 6), of: round(self.seconds[of] - seconds, 6)}
