"""Take the pictures of the home page from a report: `python docs/pictures.py <report.html>`."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import FloatRect, Page, sync_playwright

FOLDER = Path(__file__).parent / "pictures"
WIDTH, MARGIN = 960, 16
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PICTURES = {  # the first and the last part of the report that a picture shows
    "answer.png": ("header", ".downloads"),
    "accuracy.png": ("div.legend", "figure:has(#chart-accuracy)"),
}


def main(report: Path) -> None:
    """Write every picture."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": 1400}, device_scale_factor=1.5)
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("#chart-accuracy .main-svg")
        for name, (first, last) in PICTURES.items():
            page.screenshot(path=FOLDER / name, full_page=True, clip=area(page, first, last))
        browser.close()


def area(page: Page, first: str, last: str) -> FloatRect:
    """The stretch of the page from one element to another, over its whole width."""
    top, bottom = page.locator(first).bounding_box(), page.locator(last).bounding_box()
    height = bottom["y"] + bottom["height"] - top["y"]
    return {"x": 0, "y": top["y"] - MARGIN, "width": WIDTH, "height": height + 2 * MARGIN}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
