"""The tables of published numbers and ours in docs/papers.md and in the papers' READMEs.

`python docs/ledger.py` writes them anew from published.toml and ours.json of the papers; a test fails while a
page is out of date.
"""

from collections.abc import Iterator
from pathlib import Path

from fedtide.measure.ledger import read
from fedtide.show.ledger import coverage_markdown, numbers_markdown

ROOT = Path(__file__).parent.parent
PAPERS = ROOT / "studies" / "papers"
COVERAGE = ROOT / "docs" / "papers.md"
TABLES = {  # folder and table: what stands at the left
    ("dimc", "Table X"): ["dataset", "overlap", "alpha", "algorithm"],
    ("fedagg", "Table III"): ["dataset", "model", "split"],
    ("fedagg", "Table V"): ["dataset", "model", "split"],
    ("osafl", "Table II"): ["algorithm"],
    ("osafl", "Table III"): ["algorithm"],
}
END = "<!-- end of table -->\n"


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with such tables, as it must be."""
    folders = sorted(file.parent for file in PAPERS.glob("*/published.toml"))
    ledgers = {folder.name: read(folder) for folder in folders}
    counted = "".join(coverage_markdown(list(ledgers.values())))
    yield COVERAGE, _with(COVERAGE.read_text(), "coverage", counted)
    texts = {paper: (PAPERS / paper / "README.md").read_text() for paper, _ in TABLES}
    for (paper, table), rows in TABLES.items():
        made = "".join(numbers_markdown(ledgers[paper].tables[table], rows))
        texts[paper] = _with(texts[paper], table, made)
    for paper, text in texts.items():
        yield PAPERS / paper / "README.md", text


def _with(text: str, name: str, table: str) -> str:
    """The text with this table between its marks, if it has them."""
    begin = f"<!-- {name}: python docs/ledger.py -->\n"
    before, mark, rest = text.partition(begin)
    return f"{before}{begin}\n{table}\n{END}{rest.partition(END)[2]}" if mark else text


if __name__ == "__main__":
    for page, text in pages():
        page.write_text(text)
