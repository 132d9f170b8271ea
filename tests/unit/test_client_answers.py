"""What real clients print around their answer, as `make clients` reads it."""

from __future__ import annotations

import pytest

from tests.clients.claude import answer


@pytest.mark.parametrize("before", ["", "a warning\n"])
@pytest.mark.parametrize("after", ["", "\n", '\nSessionEnd hook [sh -c "{ at; }; }"] failed: Hook cancelled\n'])
def test_the_answer_of_claude_code_ends_where_its_json_does(before: str, after: str) -> None:
    assert answer(f'{before}{{"session_id": "s-1", "usage": {{}}}}{after}')["session_id"] == "s-1"
