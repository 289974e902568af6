"""The charts of the report as figures for papers: drawn by matplotlib, one file each, fonts embedded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fedtide.core.errors import OutputError, needs
from fedtide.measure.results import Results
from fedtide.record.folder import StudyFolder
from fedtide.show.report.charts import Chart
from fedtide.show.report.page import sections
from fedtide.show.report.rows import Figure, chart_rows
from fedtide.show.report.story import stories

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Format = Literal["pdf", "png", "svg"]
Width = Literal["column", "page"]
INCHES: dict[Width, tuple[float, float]] = {"column": (3.5, 2.4), "page": (7.16, 3.2)}
LEGEND = 0.15  # inches of height for each line of the legend
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "pdf.fonttype": 42,  # embedded TrueType fonts, as publishers require
    "svg.fonttype": "path",  # text as outlines, which need no font
    "svg.hashsalt": "fedtide",  # so that the same results give the same file
    "savefig.dpi": 300,
}
HEAT = ("#eef2f6", "#4a9ccf", "#063a5e")  # as in the report
STAMPS: dict[Format, dict[str, None]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {},
}
SYMBOLS = {
    "circle": "o",
    "circle-open": r"$\circ$",
    "diamond": "D",
    "cross": "+",
    "x": "x",
    "line-ns-open": "|",
}


class Drawing(NamedTuple):
    """A figure of the report and the name of its file."""

    name: str
    traces: Sequence[Figure]
    layout: Figure


def write_figures(
    folder: StudyFolder, format_: Format = "pdf", width: Width = "column"
) -> list[Path]:
    """Write every chart of a study's report into its folder `figures`."""
    needs("fedtide figures", "figures", "matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure as Blank

    found = Results.read(folder)
    rows = chart_rows(found.rows)
    parts = sections(found, rows, stories(found, rows))
    charts = [chart for part in parts for chart in part.charts]
    place, paths = folder.path / "figures", []
    try:
        place.mkdir(exist_ok=True)
        with mpl.rc_context(STYLE):
            for drawing in (one for chart in charts for one in drawings(chart)):
                canvas = Blank(figsize=INCHES[width], layout="constrained")
                draw(canvas, drawing)
                paths.append(place / f"{drawing.name}.{format_}")
                canvas.savefig(paths[-1], format=format_, metadata=STAMPS[format_])
    except OSError as error:
        raise OutputError(
            f"{place} must be a folder that can be written. Got: {error.strerror}. "
            "Free some space or make it writable."
        ) from error
    return paths


def drawings(chart: Chart) -> Iterator[Drawing]:
    """The figure of a chart or, if it has choices, one for each of them."""
    layout = chart.figure["layout"]
    if not chart.choices:
        yield Drawing(chart.key, chart.figure["data"], layout)
    for number, choice in enumerate(chart.choices):
        yield Drawing(f"{chart.key}-{number + 1}", choice.data, layout)


def draw(canvas: Canvas, drawing: Drawing) -> None:
    """Draw a Plotly figure with matplotlib."""
    axes = canvas.subplots()
    traces = drawing.traces  # of all settings: the report hides some of many, paper has no buttons
    layout = drawing.layout
    _sessions(axes, layout)
    bars = [trace for trace in traces if trace.get("type") == "bar"]
    for trace in traces:
        if trace.get("type") == "heatmap":
            _heat(canvas, axes, trace, layout)
        elif trace.get("type") == "bar":
            side_by_side = layout.get("barmode") != "relative"
            _bars(axes, trace, bars.index(trace), len(bars) if side_by_side else 1)
        else:
            _line(axes, trace)
    _axes(axes, layout)
    if len({trace.get("meta") for trace in traces} - {None}) > 1:
        _legend(canvas, axes)


def _axes(axes: Axes, layout: Figure) -> None:
    for axis, which in ((layout["xaxis"], "x"), (layout["yaxis"], "y")):
        axes.set(**{f"{which}label": axis["title"]["text"]})
        if axis.get("type") == "log":
            axes.set(**{f"{which}scale": "log"})
        if axis.get("rangemode") == "tozero":
            axes.set(**{f"{which}lim": (0, None)})
        if "ticktext" in axis:
            words = [_plain(word) for word in axis["ticktext"]]
            axes.set(**{f"{which}ticks": axis["tickvals"], f"{which}ticklabels": words})
        if axis.get("autorange") == "reversed":
            (axes.invert_xaxis if which == "x" else axes.invert_yaxis)()
    if not layout["yaxis"].get("showticklabels", True):
        axes.tick_params("y", labelleft=False, left=False)


def _line(axes: Axes, trace: Figure) -> None:
    if trace.get("fill") == "toself":
        axes.fill(trace["x"], trace["y"], facecolor=_colour(trace["fillcolor"]), linewidth=0)
        return
    line, marker = trace.get("line", {}), trace.get("marker", {})
    mode = trace.get("mode", "lines")
    axes.plot(
        trace["x"],
        trace["y"],
        color=line.get("color") or marker.get("color"),
        linestyle=_dashes(line.get("dash", "solid")) if "lines" in mode else "none",
        drawstyle="steps-post" if line.get("shape") == "hv" else "default",
        marker=SYMBOLS.get(marker.get("symbol", "circle"), "^") if "markers" in mode else None,
        markersize=marker.get("size", 6) / 2,
        alpha=marker.get("opacity"),
        label=_plain(trace.get("name", "")),
    )


def _bars(axes: Axes, trace: Figure, place: int, count: int) -> None:
    width = 0.8 / count
    x = trace["x"]
    numbers = np.arange(len(x)) if isinstance(x[0], str) else np.array(x, dtype=float)
    if not isinstance(x[0], str) and len(x) > 1:
        width *= float(np.diff(numbers).min())
    heights = [height or 0 for height in trace["y"]]
    shift = (place - (count - 1) / 2) * width if count > 1 else 0
    colour = trace["marker"]["color"]
    axes.bar(numbers + shift, heights, width, color=colour, label=_plain(trace.get("name", "")))
    if isinstance(x[0], str):
        axes.set_xticks(numbers, [_plain(word) for word in x])


def _heat(canvas: Canvas, axes: Axes, trace: Figure, layout: Figure) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    z = np.array([[np.nan if v is None else v for v in row] for row in trace["z"]])
    colours = LinearSegmentedColormap.from_list("tide", HEAT)
    (left, right), (top, bottom) = _ends(trace["x"]), _ends(trace["y"])
    scale, highest = layout["coloraxis"], float(np.nanmax(z, initial=0))
    image = axes.imshow(
        z,
        aspect="auto",
        interpolation="nearest",
        cmap=colours,
        vmin=0,
        vmax=scale.get("cmax", highest or 1),
        extent=(left, right, bottom, top),
    )
    for words, ticks in ((trace["x"], axes.set_xticks), (trace["y"], axes.set_yticks)):
        if isinstance(words[0], str):
            step = -(-len(words) // 10)
            ticks(range(0, len(words), step), words[::step])
    if "texttemplate" in trace:
        for (row, column), value in np.ndenumerate(z):
            if not np.isnan(value):
                ink = "white" if value > 0.5 * scale.get("cmax", 1) else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink, size=6)
    bar = canvas.colorbar(image, ax=axes)
    bar.set_label(scale["colorbar"]["title"]["text"])
    bar.outline.set_linewidth(0)


def _ends(places: Sequence[Any]) -> tuple[float, float]:
    """Where the first cell begins and the last one ends; cells named by words are at 0, 1, 2, ..."""
    numbers = range(len(places)) if isinstance(places[0], str) else places
    half = (numbers[1] - numbers[0]) / 2 if len(numbers) > 1 else 0.5
    return numbers[0] - half, numbers[-1] + half


def _sessions(axes: Axes, layout: Figure) -> None:
    """Draw the stripes of the sessions and their numbers."""
    for stripe in layout.get("shapes", ()):
        axes.axvspan(stripe["x0"], stripe["x1"], color="#ececec", linewidth=0, zorder=0)
    for note in layout.get("annotations", ()):
        text = re.sub(r"</?b>", "", note["text"]).replace("<br>", "\n")
        where = axes.get_xaxis_transform()
        axes.text(note["x"], 1.01, text, transform=where, ha="center", va="bottom", size=6)


def _legend(canvas: Canvas, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # One entry for each setting: the first of its lines.
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    names = list(dict.fromkeys(labels))
    # The chart itself stays as high as it was.
    canvas.set_figheight(canvas.get_figheight() + LEGEND * len(names))
    canvas.legend([first[name] for name in names], names, loc="outside upper left", ncols=1)


def _dashes(dash: str) -> Any:
    """Plotly's pattern `8px,4px` as matplotlib's `(0, (4, 2))`."""
    if dash == "solid":
        return "solid"
    return (0, tuple(float(part.removesuffix("px")) / 2 for part in dash.split(",")))


def _colour(rgba: str) -> tuple[float, float, float, float]:
    """A colour such as `rgba(0,114,178,0.18)` as four numbers between 0 and 1."""
    red, green, blue, alpha = (float(part) for part in rgba[5:-1].split(","))
    return red / 255, green / 255, blue / 255, alpha


def _plain(name: str) -> str:
    """A name from the page as plain text; an unescaped dollar sign would begin a formula."""
    return unescape(name).replace("$", r"\$")
