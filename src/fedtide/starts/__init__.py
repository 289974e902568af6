"""Which model does a session begin with?"""

from fedtide.core.kinds import Kinds
from fedtide.starts.average import ArchiveAverage
from fedtide.starts.base import Start
from fedtide.starts.cold import Cold
from fedtide.starts.previous import Previous
from fedtide.starts.similarity import Similarity
from fedtide.starts.soup import Soup

STARTS = Kinds(
    "starts",
    Start,
    {
        "cold": Cold,
        "previous": Previous,
        "average": ArchiveAverage,
        "similarity": Similarity,
        "soup": Soup,
    },
)
