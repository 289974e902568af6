"""All participation processes by their names in study files."""

from fedtide.core.kinds import Kinds
from fedtide.population.laws import Beta, Gamma, Weibull
from fedtide.population.presence import Bernoulli, Cyclic, Diurnal, Markov
from fedtide.population.process import Participation
from fedtide.population.snapshot import Fast
from fedtide.population.traces import AvailabilityTrace, Phones
from fedtide.population.uniform import Full, Regularised, Uniform

__all__ = ["PARTICIPATION", "Full", "Participation", "Uniform"]

PARTICIPATION = Kinds(
    "participation",
    Participation,
    {
        "full": Full,
        "uniform": Uniform,
        "regularised": Regularised,
        "beta": Beta,
        "gamma": Gamma,
        "weibull": Weibull,
        "bernoulli": Bernoulli,
        "markov": Markov,
        "cyclic": Cyclic,
        "diurnal": Diurnal,
        "trace": AvailabilityTrace,
        "phones": Phones,
        "fast": Fast,
    },
)
