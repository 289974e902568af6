"""FedTide: federated learning for populations of clients that come and go."""

from importlib.metadata import version

__version__ = version("fedtide")
