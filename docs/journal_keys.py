"""The tables of journal keys in docs/record.md, generated from `fedtide.record.line`.

`python docs/journal_keys.py` writes them anew; a test fails while the page is out of date.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from fedtide.record.line import KEY_GROUPS

PAGE = Path(__file__).parent / "record.md"
BEGIN, END = "<!-- keys: python docs/journal_keys.py -->\n", "<!-- end of keys -->\n"


def page(text: str) -> str:
    """The page with the tables as they must be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n".join(f"{group.__doc__}\n\n{''.join(table(group))}" for group in KEY_GROUPS)
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def table(group: type) -> Iterator[str]:
    """The keys of one origin in Markdown, a row each."""
    yield "| key | type | meaning |\n|---|---|---|\n"
    plain, full = get_type_hints(group), get_type_hints(group, include_extras=True)
    for name, kind in plain.items():
        (meaning,) = full[name].__metadata__
        yield f"| `{name}` | {_written(kind)} | {meaning} |\n"


def _written(kind: object) -> str:
    """A type in the words of JSON."""
    return JSON[getattr(kind, "__name__", "") if isinstance(kind, type) else str(kind)]


JSON = {
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "str": "text",
    "float | None": "number or null",
    "list[int]": "list of integers",
    "list[float]": "list of numbers",
    "list[list[float]]": "list of lists of numbers",
    "dict[str, float]": "object of numbers",
    "dict[str, float | None]": "object of numbers or null",
    "dict[str, str]": "object of texts",
    "ClientMoves": "object: `clients`, `ids`",
    "HeldLabels": "object: `ids`, `labels`",
    "FairnessView": "object: `groups`, `labels`, `histogram`",
}

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
