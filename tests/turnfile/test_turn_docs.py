"""The shell examples of docs/turnfile.md run in order, and print what they say but for the day."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.test_cli_examples import Playground

PAGE = Path(__file__).resolve().parents[2] / "docs" / "turnfile.md"
BLOCK = re.compile(r"^```sh\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<prints>.*?)^```$)?", re.MULTILINE | re.DOTALL)


def test_the_page_runs_at_a_shell_and_prints_what_it_says(tmp_path: Path) -> None:
    ground = Playground(tmp_path, empty=True)
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert blocks
    for block in blocks:
        code, out, errors = ground.run(f"set -e\n{block['code']}")
        assert code == 0, errors
        out = out.replace(str(ground.project), "~/kiln")
        assert re.sub(r"MSG-\d{8}-", "MSG-20260301-", out) == block["prints"]
