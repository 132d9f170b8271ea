"""Every example in README.md and docs/ runs, and every link leads somewhere.

The ```python blocks of one file run in order, in one namespace and an empty folder, as a reader would type them. A
```text block right after one is what it prints. A block whose first line is `# not run: REASON` is left out.
"""

from __future__ import annotations

import codeop
import contextlib
import io
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*DOCUMENTS, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY"))]
NEEDS = {"docs/langgraph.md": "langgraph"}  # a package, which only CI must have
NOT_RUN = "# not run: "

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<prints>.*?)^```$)?", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """One example: what is typed, in which line of its document it begins, and what it prints."""

    code: str
    line: int
    prints: str | None


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks_of(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    return [
        Block(found["code"], text.count("\n", 0, found.start("code")), found["prints"])
        for found in _BLOCK.finditer(text)
        if not found["code"].startswith(NOT_RUN)
    ]


WITH_EXAMPLES = [document for document in DOCUMENTS if blocks_of(document)]


def test_the_readme_and_the_quickstart_have_examples() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/python.md"} <= {name_of(document) for document in WITH_EXAMPLES}


@pytest.mark.parametrize("document", WITH_EXAMPLES, ids=name_of)
def test_the_examples_run_and_print_what_they_say(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (needed := NEEDS.get(name_of(document))) and os.environ.get("CI") != "true":
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        run(document, namespace)
    finally:
        for left_open in namespace.values():
            if isinstance(left_open, holdfast.Workspace):
                left_open.close()


def run(document: Path, namespace: dict[str, Any]) -> None:
    for block in blocks_of(document):
        # Empty lines before it, so that a traceback names the line of the document.
        code = compile("\n" * block.line + block.code, str(document), "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.prints is not None:
            assert printed.getvalue() == block.prints, f"the example in line {block.line} of {name_of(document)}"


def refused_lines(code: str) -> list[str]:
    """The lines that the interactive prompt refuses when an example is pasted, with an empty line at its end."""
    compiler, pending, refused = codeop.CommandCompiler(), "", []
    for line in code.split("\n"):
        try:
            complete = compiler(pending + line) is not None
        except SyntaxError:
            complete = True
            refused.append(line)
        pending = "" if complete else f"{pending}{line}\n"
    return refused


@pytest.mark.parametrize("document", WITH_EXAMPLES, ids=name_of)
def test_the_examples_can_be_pasted_into_the_interactive_prompt(document: Path) -> None:
    refused = {block.line: refused_lines(block.code) for block in blocks_of(document)}
    assert {line: found for line, found in refused.items() if found} == {}


def test_a_block_without_an_empty_line_after_it_is_noticed() -> None:
    assert refused_lines("with a:\n    pass\nprint(1)\n") == ["print(1)"]
    assert refused_lines("with a:\n    pass\n\nprint(1)\n") == []
    assert refused_lines("with a:\n    b\n\n    c\n") == ["    c"]


def slugs_of(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    slugs = set()
    for heading in re.findall(r"^#+ (.+)$", _FENCED.sub("", document.read_text(encoding="utf-8")), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        slugs.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return slugs


def links_of(document: Path) -> list[str]:
    text = _FENCED.sub("", document.read_text(encoding="utf-8"))
    return [link for link in _LINK.findall(text) if "://" not in link]


def is_broken(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.exists():
        return True
    return bool(anchor) and anchor not in slugs_of(target)


@pytest.mark.parametrize("document", LINKED, ids=name_of)
def test_every_relative_link_leads_to_a_file_and_heading_that_exist(document: Path) -> None:
    assert [link for link in links_of(document) if is_broken(document, link)] == []


def test_every_page_and_decision_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs/index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index)}
    assert [name_of(page) for page in (ROOT / "docs").rglob("*.md") if page not in linked | {index}] == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](page.md#one-two) [b](page.md#three) [c](gone.md)\n", encoding="utf-8")
    assert [link for link in links_of(page) if is_broken(page, link)] == ["page.md#three", "gone.md"]
