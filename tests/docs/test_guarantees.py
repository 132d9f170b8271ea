"""docs/guarantees.md promises nothing that no test proves, and says on which kinds of workspaces each test runs.

A guarantee is a list item: one sentence, then one line per file of tests, `[file] `test_one`, `test_two` (kinds)`,
each line but the last ended by a backslash. The kinds stand only where a test of the conformance suite cannot run on
all of them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.worlds.kinds import KINDS, ReplicatedWorld

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/guarantees.md"
SUITE = ROOT / "tests/conformance"
NOT_PROMISED = "What is not promised"

_TEST = re.compile(r"`(test_\w+)`(?: \(([^)]*)\))?")


class Proof(NamedTuple):
    """A test that a guarantee names, the file it is said to be in, and the kinds it is said to run on."""

    file: str
    test: str
    kinds: str


class Guarantee(NamedTuple):
    """A sentence and its proofs."""

    sentence: str
    proofs: tuple[Proof, ...]


def sections(text: str) -> dict[str, str]:
    """The parts of the document by heading."""
    heads = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(heads[::2], heads[1::2], strict=True))


def guarantees(text: str) -> list[Guarantee]:
    """Every item of every section that promises something."""
    promised = [part for head, part in sections(text).items() if head != NOT_PROMISED]
    return [read(item) for part in promised for item in re.findall(r"^- (.+(?:\n  .+)*)", part, re.MULTILINE)]


def read(item: str) -> Guarantee:
    sentence, *lines = re.split(r"\\\n  (?=\[)", item)
    proofs = []
    for line in lines:
        file = re.match(r"\[(\w+)\]", line)
        assert file, f"no file in {line!r}"
        proofs += [Proof(file[1], name, kinds) for name, kinds in _TEST.findall(line)]
    return Guarantee(" ".join(sentence.split()), tuple(proofs))


def files(text: str) -> dict[str, Path]:
    """Where the short names of files lead."""
    found = re.findall(r"^\[(\w+)\]: (\S+)$", text, re.MULTILINE)
    return {name: (DOCUMENT.parent / path).resolve() for name, path in found}


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


TEXT = DOCUMENT.read_text(encoding="utf-8")
FILES = files(TEXT)
GUARANTEES = guarantees(TEXT)
PROOFS = sorted({proof for guarantee in GUARANTEES for proof in guarantee.proofs})
MODULES = sorted(SUITE.glob("test_*.py"))


def module_of(path: Path) -> ModuleType:
    return importlib.import_module(f"tests.conformance.{path.stem}")


def kinds_of(test: str, path: Path) -> str:
    """The kinds that a conformance test runs on, as the document writes them: nothing for all of them."""
    function = getattr(module_of(path), test)
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "capability"]
    needed = {mark.args[0] for mark in marks}
    shut_out = re.findall(r'if world\.kind == "(\w+)":\n +pytest\.skip', inspect.getsource(function))
    # two replicas or three, of whatever log: the promise is the same
    names = {kind: "replicated" if issubclass(kind, ReplicatedWorld) else kind.kind for kind in KINDS}
    kinds = dict.fromkeys(names[kind] for kind in KINDS if needed <= kind.capabilities and kind.kind not in shut_out)
    return "" if len(kinds) == len(set(names.values())) else ", ".join(kinds)


def test_there_are_guarantees_and_what_is_not_promised_is_said_too() -> None:
    assert len(GUARANTEES) >= 60
    assert len(re.findall(r"^- ", sections(TEXT)[NOT_PROMISED], re.MULTILINE)) >= 5


def test_no_item_is_left_out_by_the_reader_of_this_document() -> None:
    written = sum(part.count("\n- ") for head, part in sections(TEXT).items() if head != NOT_PROMISED)
    assert written == len(GUARANTEES)
    assert len(re.findall(r"`test_\w+`", TEXT)) == sum(len(guarantee.proofs) for guarantee in GUARANTEES)


def test_every_guarantee_is_one_sentence_and_linked_to_a_test() -> None:
    sentence = re.compile(r"[A-Z`](?:(?!\. ).)*\.")
    assert [one.sentence for one in GUARANTEES if not (sentence.fullmatch(one.sentence) and one.proofs)] == []


def test_no_guarantee_is_given_twice() -> None:
    sentences = [guarantee.sentence for guarantee in GUARANTEES]
    assert sorted(sentences) == sorted(set(sentences))


def test_every_linked_test_exists_in_its_file() -> None:
    assert [proof for proof in PROOFS if proof.test not in names_in(FILES[proof.file])] == []


def test_every_linked_test_runs_on_the_kinds_it_says() -> None:
    def found(proof: Proof) -> str:
        path = FILES[proof.file]
        return kinds_of(proof.test, path) if path.parent == SUITE else ""

    assert [(proof, found(proof)) for proof in PROOFS if proof.kinds != found(proof)] == []


def test_every_file_is_used() -> None:
    assert FILES.keys() - {proof.file for proof in PROOFS} == set()


def test_every_module_of_the_conformance_suite_is_linked() -> None:
    assert set(MODULES) - {FILES[proof.file] for proof in PROOFS} == set()


# The requirements on cells, tasks, agents with mail and paths, stashes, cycles and turn files. What T17 asks (scale) is
# no promise of a kind of workspace, but of plans; S1 is about the cupboard, S13 about files, P9 about buckets; turn
# files need no workspace, but the steps of their mail (F11) are the same.
REQUIRED = {
    "c": set(range(1, 19)),
    "t": set(range(1, 20)),
    "a": set(range(1, 8)),
    "s": set(range(1, 15)),
    "p": set(range(1, 12)),
    "f": set(range(1, 15)),
}
NOT_CONFORMANCE: dict[str, set[int]] = {"s": {1, 13}, "t": {17}, "p": {9}, "f": REQUIRED["f"] - {11}}


def numbers(letter: str, name: str) -> set[int]:
    """The requirements that a test names, such as 7 and 12 for `test_t7_t12_a_tree_...`."""
    found = re.match(r"test_((?:[a-z]\d+_)+)", name)
    return {int(number) for number in re.findall(rf"\b{letter}(\d+)_", found[1].replace("_", "_ "))} if found else set()


@pytest.mark.parametrize("letter", REQUIRED)
def test_the_conformance_suite_covers_every_requirement(letter: str) -> None:
    covered = {number for module in MODULES for name in names_in(module) for number in numbers(letter, name)}
    assert covered == REQUIRED[letter] - NOT_CONFORMANCE.get(letter, set())


@pytest.mark.parametrize("letter", REQUIRED)
def test_the_guarantees_cover_every_requirement(letter: str) -> None:
    assert {number for proof in PROOFS for number in numbers(letter, proof.test)} == REQUIRED[letter]


def test_the_requirements_of_a_test_are_read_from_its_name() -> None:
    assert numbers("t", "test_t7_t12_a_tree") == {7, 12}
    assert numbers("c", "test_t7_t12_a_tree") == numbers("t", "test_a_t7_tree") == set()
