"""The report: one HTML file that shows a study, computed from its folder alone."""

from html import escape
from pathlib import Path

from fedtide.record.folder import StudyFolder, write_text


def write_report(folder: StudyFolder) -> Path:
    """Write report.html into the folder of a study."""
    path = folder.path / "report.html"
    name = escape(folder.read_json("study.json")["study"])
    write_text(path, f'<!doctype html><meta charset="utf-8"><title>{name}</title><h1>{name}</h1>')
    return path
