"""The site of the documents: what mkdocs is told about them, and whether what it built holds together.

mkdocs loads this file as a hook. The first page is the README followed by docs/index.md, whose sections are the
navigation: the list of pages is kept in one place. Links that lead out of docs/ name their file instead.

    python -m tests.docs.site site      every link of the built site leads somewhere, nothing is loaded from elsewhere
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_DEFINITION = re.compile(r"^\[([^\]]+)\]: (\.\./\S+)$", re.MULTILINE)  # of what lies outside of docs/
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)]+\.md)\)", re.MULTILINE)
_SECTION = re.compile(r"^(?:\*\*(?P<bold>[^*\n]+)\*\*|## (?P<heading>.+))$", re.MULTILINE)
# Attributes that make a browser load something; a link that a reader may follow is none.
_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("use", "href")}


def sections(index: str) -> list[dict[str, Any]]:
    """The navigation: the sections of docs/index.md with their pages."""
    found: list[dict[str, Any]] = [{"Home": "index.md"}]
    heads = list(_SECTION.finditer(index))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        text = index[head.end() : following.start() if following else len(index)]
        pages = [{title.replace("`", ""): path} for title, path in _ENTRY.findall(text)]
        if pages:
            found.append({head["bold"] or head["heading"]: pages})
    return found


def home(readme: str, index: str) -> str:
    """The first page: the README without its table of documents, then what docs/index.md says of each."""
    text, found, _ = readme.partition("\n## Documents\n")
    assert found, "README.md has no section Documents"
    text = _LINK.sub(lambda link: f"[{link[1]}]({link[2].removeprefix('docs/')})", text).replace("](docs/", "](")
    return f"{text}\n## Documents\n\n{index.partition(chr(10))[2].replace('## Decisions', '### Decisions')}"


def inside(markdown: str, path: str, pages: Iterable[str]) -> str:
    """A page whose links lead to pages of the site; what lies elsewhere in the repository is named."""
    known = set(pages)

    def change(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        file, _, anchor = target.partition("#")
        if "://" in target or not file:
            return link[0]
        place = (ROOT / "docs" / path).parent.joinpath(file).resolve()
        if place == ROOT / "README.md":
            up = "../" * path.count("/")
            return f"[{text}]({up}index.md{'#' * bool(anchor)}{anchor})"
        if place.is_relative_to(ROOT / "docs") and place.relative_to(ROOT / "docs").as_posix() in known:
            return link[0]
        name = place.relative_to(ROOT).as_posix()
        return text if name in text else f"{text} (`{name}`)"

    def name(definition: re.Match[str]) -> str:
        place = (ROOT / "docs" / path).parent.joinpath(definition[2]).resolve()
        return f"- {definition[1]}: `{place.relative_to(ROOT).as_posix()}`"

    markdown = _DEFINITION.sub(name, markdown)
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(change, part) for part in parts)


def on_config(config: Any) -> Any:
    """mkdocs has read its configuration."""
    config.nav = sections((ROOT / "docs/index.md").read_text(encoding="utf-8"))
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """mkdocs is about to render a page."""
    if page.file.src_uri == "index.md":
        markdown = home((ROOT / "README.md").read_text(encoding="utf-8"), markdown)
    return inside(markdown, page.file.src_uri, (file.src_uri for file in files))


class Page(HTMLParser):
    """What a built page has: its anchors, where it links to, what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what matters of a tag."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
            elif (tag, name) in _LOADS and ("rel", "canonical") not in attrs:
                self.loads.append(value)


def problems(site: Path) -> list[str]:
    """Links of a built site that lead nowhere, and what it would load from elsewhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name} loads {target}" for target in page.loads if urlsplit(target).netloc]
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            if not place.is_file():
                found.append(f"{name} links to {target}, which does not exist")
            elif parts.fragment and place in pages and unquote(parts.fragment) not in pages[place].anchors:
                found.append(f"{name} links to {target}, which has no such anchor")
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        found += [f"{sheet.name} loads {url}" for url in re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", text)]
    return found


def main(arguments: list[str]) -> int:
    """Print the problems of a built site; exit code 1 if it has some."""
    site = Path(arguments[0])
    found = problems(site)
    pages = len(list(site.rglob("*.html")))
    print(
        "\n".join(found) or f"{pages} pages in {site}: every link leads somewhere, and nothing is loaded from elsewhere"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
