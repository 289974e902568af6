"""Wall time of a round, by phase."""

from time import perf_counter


class Timer:
    """Measures the phases of a round: each `lap` adds the time since the last one to a phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._last, 6)
        self._last = now

    def part(self, name: str, of: str, seconds: float) -> None:
        """Move so many seconds of the phase `of` to a phase of their own."""
        self.seconds |= {name: round(seconds, 6), of: round(self.seconds[of] - seconds, 6)}
