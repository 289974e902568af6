"""Which model does a session begin with?"""

from fedtide.core.kinds import Kinds
from fedtide.starts.average import ArchiveAverage
from fedtide.starts.base import Start
from fedtide.starts.cold import Cold
from fedtide.starts.newcomers import AutoTrigger, Newcomers
from fedtide.starts.previous import Previous
from fedtide.starts.similarity import Similarity
from fedtide.starts.soup import Soup
from fedtide.starts.trigger import Always, Drop, Signature, Trigger, Turnover

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
TRIGGERS = Kinds(
    "triggers",
    Trigger,
    {
        "auto": AutoTrigger,
        "always": Always,
        "turnover": Turnover,
        "drop": Drop,
        "signature": Signature,
        "newcomers": Newcomers,
    },
)
