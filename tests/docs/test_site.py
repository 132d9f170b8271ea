"""The site of the documents: its navigation, its first page, its links, and the check of what was built.

Building it needs the extra `docs`; `make docs` does that, strictly, and then checks the links as here.
"""

from __future__ import annotations

from pathlib import Path

from tests.docs.site import ROOT, home, inside, problems, sections

INDEX = (ROOT / "docs/index.md").read_text(encoding="utf-8")
PAGES = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = sections(INDEX)
    assert navigation[0] == {"Home": "index.md"}
    listed = [
        path for section in navigation[1:] for pages in section.values() for page in pages for path in page.values()
    ]
    assert sorted(listed) == sorted(PAGES - {"index.md"})
    assert [*navigation[1]] == ["Start"]


def test_the_first_page_is_the_readme_and_then_the_index() -> None:
    page = home((ROOT / "README.md").read_text(encoding="utf-8"), INDEX)
    assert page.startswith("# Holdfast\n")
    assert page.count("\n## Documents\n") == 1
    assert "](docs/" not in page
    assert "(images/board-dark.png)" in page
    assert page.index("## Install") < page.index("**Start**")


def test_a_link_out_of_the_site_names_its_file() -> None:
    text = (
        "[install](../README.md#install) [a test](../tests/docs/site.py) [`compose.yaml`](../compose.yaml) [x](http.md)"
    )
    assert inside(text, "mcp.md", ["http.md"]) == (
        "[install](index.md#install) a test (`tests/docs/site.py`) `compose.yaml` [x](http.md)"
    )
    assert inside("[install](../../README.md)", "decisions/0001.md", []) == "[install](../index.md)"
    assert inside("[q] `t`\n\n[q]: ../tests/q.py\n", "a.md", []) == "[q] `t`\n\n- q: `tests/q.py`\n"
    assert inside("```text\n[a](../tests/b)\n```", "mcp.md", []) == "```text\n[a](../tests/b)\n```"


def test_a_dead_link_and_what_is_loaded_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here">1</a><a href="b.html#there">2</a><a href="c.html">3</a><a href="https://x.org">4</a>'
        '<img src="//cdn.org/x.png"><script src="a.js"></script>'
    )
    (tmp_path / "b.html").write_text("<p>nothing</p>")
    (tmp_path / "a.js").write_text("")
    (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.org/f.woff2) }")
    assert problems(tmp_path) == [
        "a.html loads //cdn.org/x.png",
        "a.html links to b.html#there, which has no such anchor",
        "a.html links to c.html, which does not exist",
        "a.css loads https://fonts.org/f.woff2",
    ]
    assert problems(tmp_path / "none") != []
