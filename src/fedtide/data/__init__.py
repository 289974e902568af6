"""What do clients hold?"""

from fedtide.core.kinds import Kinds
from fedtide.data.blank import Blank
from fedtide.data.own_files import Files
from fedtide.data.source import Data, Source
from fedtide.data.video import Video

SOURCES = Kinds(
    "data",
    Source,
    {"dataset": Data, "files": Files, "video": Video, "blank": Blank},
    usual="dataset",
)
