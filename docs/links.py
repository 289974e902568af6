"""For MkDocs: pages outside docs/ join the site, and links work there as they do in the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

OUTSIDE = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "examples/*.py", "studies/**/*.*")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that docs/ links to."""
    root = Path(config.config_file_path).parent
    for pattern in OUTSIDE:
        for path in sorted(root.glob(pattern)):
            if "__pycache__" not in path.parts:
                name = path.relative_to(root).as_posix()
                file = File.generated(config, name, abs_src_path=str(path))
                file.inclusion = (
                    InclusionLevel.NOT_IN_NAV if "/" in name else InclusionLevel.INCLUDED
                )
                files.append(file)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links of the repository into links of the site."""
    root = Path(config.config_file_path).parent
    here = page.file.src_uri
    if here == "index.md":
        page.meta["hide"] = ["navigation"]  # its menu would have one entry
    inside = (root / "docs" / here).exists()
    folder = posixpath.dirname(f"docs/{here}" if inside else here)

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        site = target.removeprefix("docs/")
        return "](" + posixpath.relpath(site, posixpath.dirname(here) or ".")

    return LINK.sub(moved, markdown)
