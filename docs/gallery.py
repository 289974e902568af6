"""Run the studies of the gallery, draw their pictures, write their answers: `python docs/gallery.py folder`.

The folder is for results; studies whose results it has already are not run again. Answers stand in bold
below their pictures on docs/gallery.md.
"""

import re
import sys
from pathlib import Path

from PIL import Image

from fedtide import config
from fedtide.run.execute import run_study
from fedtide.show.figures import write_figures
from fedtide.show.report.headline import headline

HERE = Path(__file__).parent
STUDIES = HERE.parent / "studies" / "gallery"
PICTURES = HERE / "pictures" / "gallery"
PAGE = HERE / "gallery.md"
PIXELS, COLOURS = 1300, 64  # width of a picture; of its palette
FIGURES = {"radio": "over_joules", "rates": "rates", "nights": "participation", "problems": "ranks"}


def main(results: Path) -> None:
    """Write every picture and every answer."""
    for file in sorted(STUDIES.glob("*.toml")):
        done = run_study(config.load(file), results)
        drawn = {path.stem: path for path in write_figures(done.folder, "png", "page")}
        save(drawn[FIGURES.get(file.stem, "accuracy")], PICTURES / f"{file.stem}.png")
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(answered(text, file.stem, headline(done.results)[0]), encoding="utf-8")


def answered(page: str, study: str, answer: str) -> str:
    """The page with another answer below the picture of a study."""
    place = rf"(\(pictures/gallery/{study}\.png\)\n\n)\*\*.*?\*\*"
    plain = answer.replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(place, lambda found: f"{found[1]}**{plain}**", page, count=1)


def save(figure: Path, picture: Path) -> None:
    """Write a figure as small as a page needs it."""
    with Image.open(figure) as drawn:
        height = round(drawn.height * PIXELS / drawn.width)
        small = drawn.convert("RGB").resize((PIXELS, height), Image.Resampling.LANCZOS)
        small.quantize(COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
