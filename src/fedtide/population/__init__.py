"""Which clients exist, and which of them take part in a round?"""

from fedtide.core.kinds import Kinds
from fedtide.population.arrivals import Poisson, VisitTrace
from fedtide.population.live import Live
from fedtide.population.patterns import (
    Handover,
    IncrementalArrival,
    IncrementalDeparture,
    MarkovPresence,
    RandomPresence,
    RoundRobin,
    StaticPresence,
)
from fedtide.population.sessions import Alternating, Fixed, Pattern, Population

POPULATIONS = Kinds(
    "populations",
    Population,
    {
        "fixed": Fixed,
        "alternating": Alternating,
        "pattern": Pattern,
        "poisson": Poisson,
        "trace": VisitTrace,
        "live": Live,
        "static": StaticPresence,
        "incremental-arrival": IncrementalArrival,
        "incremental-departure": IncrementalDeparture,
        "round-robin": RoundRobin,
        "random": RandomPresence,
        "markov": MarkovPresence,
        "handover": Handover,
    },
)
