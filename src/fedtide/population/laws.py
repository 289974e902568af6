"""Index laws: cohorts are drawn by a distribution over the clients' ids, as in FAST.

Li et al., "FAST: A Lightweight Mechanism Unleashing Arbitrary Client Participation in Federated Learning",
and its public repository. A number z is drawn and stands for client int(z M) of M. Numbers outside [0, 1)
and clients already drawn are drawn again until the cohort is a `rate` of the clients, rounded up. Since the
distribution is over ids, the same clients take part most often from the first round to the last.

The presets are the two sets of parameters in the repository's history. "published" is what the paper's
figures show; "2023-12" was committed when the FedAvg runs of its Tables 2 and 3 were made.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import stream
from fedtide.core.types import Ids, Session
from fedtide.population.process import Participation, rounded_up

TRIES = 1000  # draws for each client of the cohort, at most

Preset = Literal["published", "2023-12"]


@dataclass(frozen=True, kw_only=True)
class IndexLaw(Participation):
    """A cohort drawn by a distribution over [0, 1).

    If 1000 draws per client do not find enough different clients, the cohort is smaller.
    """

    PRESETS: ClassVar[dict[str, tuple[float, float]]]

    rate: float = 0.1
    preset: Preset = "published"

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "participation.rate", "a share in (0, 1]", self.rate)

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """`count` samples of z."""

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        population = len(session.clients)
        size = rounded_up(self.rate, population)
        rng = stream(seed, "law", t)
        seen = np.empty(0, dtype=np.int64)
        for _ in range(TRIES // 4):
            z = self.sample(rng, 4 * size)
            seen = np.concatenate([seen, (z[(z >= 0) & (z < 1)] * population).astype(np.int64)])
            drawn, first = np.unique(seen, return_index=True)
            if len(drawn) >= size:
                drawn = np.sort(seen[np.sort(first)[:size]])  # the first `size` that were drawn
                break
            seen = seen[np.sort(first)]
        if not len(drawn):
            raise ConfigError(
                f"participation must be a distribution that can draw one of the {population} clients. Got "
                f"{self!r}, whose samples lie outside [0, 1). Change its parameters."
            )
        return session.clients[drawn]

    def pair(self, one: float, other: float) -> tuple[float, float]:
        """The distribution's two parameters; 0 stands for that of the preset."""
        preset = self.PRESETS[self.preset]
        return one or preset[0], other or preset[1]

    def check_positive(self, *names: str) -> None:
        """Raise a `ConfigError` for negative parameters; 0 stands for the preset's."""
        for name in names:
            value = getattr(self, name)
            require(value >= 0, f"participation.{name}", "positive, or 0 for the preset's", value)


@dataclass(frozen=True, kw_only=True)
class Beta(IndexLaw):
    """z ~ Beta(a, b): published Beta(1, 10) prefers low indices, Beta(20, 1) of 2023-12 high ones."""

    PRESETS: ClassVar = {"published": (1, 10), "2023-12": (20, 1)}

    a: float = 0.0
    b: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("a", "b")

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        a, b = self.pair(self.a, self.b)
        return rng.beta(a, b, count)


@dataclass(frozen=True, kw_only=True)
class Gamma(IndexLaw):
    """z ~ Gamma(shape, scale): published (10, 0.01), a hump around index M / 10."""

    PRESETS: ClassVar = {"published": (10, 0.01), "2023-12": (20, 0.01)}

    shape: float = 0.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("shape", "scale")

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        shape, scale = self.pair(self.shape, self.scale)
        return rng.gamma(shape, scale, count)


@dataclass(frozen=True, kw_only=True)
class Weibull(IndexLaw):
    """z = Weibull(shape) / divisor: published (10, 1.2), a hump around index 4 M / 5."""

    PRESETS: ClassVar = {"published": (10, 1.2), "2023-12": (20, 1.2)}

    shape: float = 0.0
    divisor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("shape", "divisor")

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        shape, divisor = self.pair(self.shape, self.divisor)
        with np.errstate(over="ignore"):  # infinity lies outside [0, 1), too
            return rng.weibull(shape, count) / divisor
