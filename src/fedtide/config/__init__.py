"""Study files: TOML to the objects of an experiment, with a helpful error for every mistake."""

from fedtide.config.build import build, convert, settings
from fedtide.config.load import STUDY_KEYS, load, put, study
from fedtide.config.model import load_model
from fedtide.config.tuning import tuned_files

__all__ = [
    "STUDY_KEYS",
    "build",
    "convert",
    "load",
    "load_model",
    "put",
    "settings",
    "study",
    "tuned_files",
]
