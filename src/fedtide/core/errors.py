"""All errors that FedTide raises on purpose.

    FedTideError
    ├── ConfigError     a study file or an argument is wrong
    ├── DataError       a dataset is missing, damaged or does not fit
    ├── EngineError     a model or an algorithm cannot run on this engine
    ├── AuthorError     an algorithm written by a user raised an error or returned something wrong
    ├── TrainingError   training broke down (the loss is no longer a number)
    └── OutputError     results cannot be written or read

Every message has one shape: where, what it must be, what it got, what to do.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec


class FedTideError(Exception):
    """The base class of all errors that FedTide raises on purpose."""


class ConfigError(FedTideError, ValueError):
    """A study file or an argument is wrong."""


class DataError(FedTideError):
    """A dataset is missing, damaged or does not fit."""


class EngineError(FedTideError):
    """A model or an algorithm cannot run on the chosen engine."""


class AuthorError(FedTideError):
    """An algorithm's own method raised an error or returned something that cannot be used."""


class TrainingError(FedTideError):
    """Training broke down: the loss is no longer a number, or has diverged."""


class OutputError(FedTideError):
    """Results cannot be written or read."""


def require(holds: bool, where: str, must: str, got: object, do: str = "") -> None:
    """Raise a `ConfigError` (where, what it must be, what it got, what to do) unless `holds`."""
    if not holds:
        raise ConfigError(f"{where} must be {must}. Got {got!r}." + (f" {do}" if do else ""))


def needs(where: str, extra: str, *packages: str) -> None:
    """Raise a `ConfigError` that names the extra unless all these packages are installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ConfigError(
            f"{where} needs the package {missing[0]}. Got none installed. "
            f'Run: pip install "fedtide[{extra}]"'
        )


def choices(word: str, known: Iterable[str]) -> str:
    """A sentence for an unknown word: the most similar known one, or all of them."""
    known = sorted(known)
    near = get_close_matches(word, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Choose from: {', '.join(known)}."


def is_out_of_memory(error: Exception) -> bool:
    """Python and numpy raise a MemoryError, torch a RuntimeError with one of a few phrases."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    torchs = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return torchs or isinstance(error, MemoryError)


@contextmanager
def memory_explained() -> Iterator[None]:
    """Turn an out-of-memory error into an `EngineError` that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise EngineError(
            "The run must fit into this machine's memory. Got: "
            f"{str(error).splitlines()[0] if str(error) else 'no room left'}. "
            "Use fewer clients, a smaller cohort, batch or model."
        ) from error
