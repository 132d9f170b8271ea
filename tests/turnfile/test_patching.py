"""F6: a patch applies as a whole where all its lines stand, or not at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.faces.cli.commands import turn_edit

TEXT = "".join(f"line {number}\n" for number in range(1, 31))
PATCH = "--- a/x\n+++ b/x\n@@ -9,3 +9,4 @@\n line 9\n-line 10\n+line ten\n+and more\n line 11\n"

lines = st.lists(st.sampled_from(["a\n", "b\n", "\n", "- c\n", "d\r\n", "@@ e\n", "\x0cf\n"]), max_size=30)


def applied(text: str, patch: str) -> str:
    [(path, hunks)] = turn_edit.parse(patch).items()
    return turn_edit.apply_patch(text, hunks, path)


def test_f6_a_hunk_is_applied_where_its_lines_stand() -> None:
    after = TEXT.replace("line 10\n", "line ten\nand more\n")
    assert applied(TEXT, PATCH) == after
    assert applied("new\n" * 5 + TEXT, PATCH) == "new\n" * 5 + after  # they have moved


def test_f6_a_hunk_that_adds_lines_at_the_end_fits_there_alone_and_only_once() -> None:
    text = "- a\n- b\n- c\n\n## Older\n\n- a\n- b\n- c\n"
    patch = "--- a/x\n+++ b/x\n@@ -7,3 +7,4 @@\n - a\n - b\n - c\n+- d\n"
    after = applied(text, patch)
    assert after == text + "- d\n"
    with pytest.raises(Invalid, match="does not fit x"):
        applied(after, patch)  # the same lines are higher up, but not at the end
    with pytest.raises(Invalid, match="does not fit x"):
        applied("- new\n" + text + "- more\n", patch)
    first = "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n+- z\n - a\n - b\n"
    with pytest.raises(Invalid, match="does not fit x"):
        applied(applied(text, first), first)


def test_f6_a_patch_that_is_applied_already_or_fits_twice_is_refused() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -2,2 +2,3 @@\n a\n+new\n b\n"
    after = applied("top\na\nb\nend\na\nb\n", patch)
    assert after == "top\na\nnew\nb\nend\na\nb\n"
    with pytest.raises(Invalid, match="already applied to x, at line 2"):
        applied(after, patch)
    with pytest.raises(Invalid, match="several places: lines 4, 7"):
        applied("x\nx\nx\na\nb\nend\na\nb\n", patch)


@pytest.mark.parametrize("text", ["", TEXT.replace("line 11\n", "line eleven\n"), TEXT.replace("\n", "\r\n")])
def test_f6_a_hunk_is_never_bent_to_fit(text: str) -> None:
    with pytest.raises(Invalid, match="does not fit x"):
        applied(text, PATCH)


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "hello\n",
        "@@ -1 +1 @@\n-a\n+b\n",
        "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        "--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a\n",
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n?b\n",
        "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n-b\n+c\n+d\n",
    ],
)
def test_f6_what_is_no_unified_diff_is_refused(patch: str) -> None:
    with pytest.raises(Invalid):
        turn_edit.parse(patch)


def test_f6_a_file_may_be_new_and_may_end_without_a_newline() -> None:
    assert applied("", "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n") == "a\nb"
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"
    assert applied("a", patch) == "a\n"


def test_f6_a_patch_of_git_over_several_files_is_read() -> None:
    patch = f"diff --git a/x b/x\nindex 1..2 100644\n{PATCH}diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n"
    found = turn_edit.parse(patch)
    assert list(found) == ["x", "y"]
    assert turn_edit.apply_patch("a\n", found["y"], "y") == "b\n"


@given(lines, lines)
def test_f6_what_leads_from_one_text_to_another_leads_there(before: list[str], after: list[str]) -> None:
    old, new = "".join(before), "".join(after)
    assert turn_edit.apply_patch(old, turn_edit.hunks_between(old, new), "x") == new


@given(lines, lines, st.booleans(), st.booleans())
def test_f6_what_diff_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], cut_old: bool, cut_new: bool
) -> None:
    old, new = "".join(before), "".join(after)
    old, new = old.rstrip("\r\n") if cut_old else old, new.rstrip("\r\n") if cut_new else new
    folder = tmp_path_factory.mktemp("diff")
    Path(folder, "old").write_bytes(old.encode())
    Path(folder, "new").write_bytes(new.encode())
    made = subprocess.run(["diff", "-au", "old", "new"], cwd=folder, capture_output=True).stdout.decode()
    assert (applied(old, made) if made else old) == new
