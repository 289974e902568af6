"""The colours and line patterns of settings, the same in every chart and table."""

from typing import NamedTuple

# Okabe and Ito's palette for all kinds of colour vision, without its black and yellow: one of them
# is lost on a dark page, the other on a light one.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C")
DASHES = ("", "8 4", "2 3", "10 3 2 3", "14 4", "14 3 2 3 2 3", "5 5 1 5", "1 6")


class Look(NamedTuple):
    """A colour and, once the colours are used up, a pattern of dashes."""

    colour: str
    dash: str  # lengths in pixels, as in SVG; empty for a solid line

    @property
    def plotly_dash(self) -> str:
        return ",".join(f"{part}px" for part in self.dash.split()) or "solid"

    @property
    def shade(self) -> str:
        """The colour of a band behind the line."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.18)"


def look(number: int) -> Look:
    """The look of the setting with this number."""
    repeat, colour = divmod(number, len(PALETTE))
    return Look(PALETTE[colour], DASHES[repeat % len(DASHES)])
