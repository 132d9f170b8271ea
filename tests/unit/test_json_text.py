"""JSON as text, and our hooks in it (issue 7): whatever a settings file looks like, what is not ours keeps its bytes.

Generated documents have any formatting that JSON allows, and often something where our entries go.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.faces.cli.setup.clients import CLIENTS
from holdfast.faces.cli.setup.entries import Entries, check, items, value_of

EDITS = {
    f"{client_name} {name}": edit
    for client_name, client in CLIENTS.items()
    for name, edit in client.files.items()
    if isinstance(edit, Entries)
}
EVENTS = sorted({event for edit in EDITS.values() for event in edit.wanted})
FOREIGN = {"type": "command", "command": "make lint # holdfast prime"}

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)
groups: st.SearchStrategy[Any] = (
    st.just({"matcher": "Write", "hooks": [FOREIGN]}) | st.just(FOREIGN) | st.just({"hooks": []}) | values
)
hooks = st.dictionaries(st.sampled_from([*EVENTS, "Stop"]), st.lists(groups, max_size=2), max_size=3)
documents = st.dictionaries(st.sampled_from(["model", "env", 'a"b', ""]) | st.text(), values, max_size=3).flatmap(
    lambda root: (
        hooks.map(lambda found: {**root, "hooks": found}) | st.just({k: v for k, v in root.items() if k != "hooks"})
    )
)
spaces = st.sampled_from(["", "", " ", "\n", "\r\n", "\t", "  \n\n   "])


@st.composite
def texts(draw: st.DrawFn, version: bool) -> str:
    """A JSON object as somebody might have written it: any order, any white space, any escapes, a byte order mark."""

    def write(value: Any) -> str:
        if isinstance(value, dict):
            members = draw(st.permutations(list(value.items())))
            inner = [f"{gap()}{write(key)}{gap()}:{gap()}{write(item)}{gap()}" for key, item in members]
            return "{" + (",".join(inner) or gap()) + "}"
        if isinstance(value, list):
            return "[" + (",".join(f"{gap()}{write(item)}{gap()}" for item in value) or gap()) + "]"
        if isinstance(value, str) and value and draw(st.booleans()):
            return '"' + "".join(f"\\u{ord(c):04X}" if ord(c) < 0x10000 else c for c in value) + '"'
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def gap() -> str:
        return draw(spaces)

    document = draw(documents)
    if version:
        document["version"] = 1
    return draw(st.sampled_from(["", "", "\ufeff"])) + gap() + write(document) + gap()


def plus_ours(before: Any, edit: Entries) -> Any:
    """What a document must mean afterwards: a second, plain definition."""
    found = json.loads(json.dumps(before))
    for event, entry in edit.wanted.items():
        found.setdefault("hooks", {}).setdefault(event, []).append(entry)
    return found


def meaning(text: str) -> Any:
    return json.loads(text.removeprefix("\ufeff"))


@pytest.mark.parametrize("name", EDITS)
@given(data=st.data())
def test_i7_any_document_gets_our_hooks_and_loses_them_again_to_the_byte(name: str, data: st.DataObject) -> None:
    edit = EDITS[name]
    before = data.draw(texts(version=bool(edit.needs)))
    put = edit.put(before)
    assert meaning(put) == plus_ours(meaning(before), edit)
    assert edit.put(put) == put
    assert edit.drop(put) == before
    assert edit.drop(before) == before


@given(text=texts(version=False))
def test_the_scanner_finds_every_value_where_it_is(text: str) -> None:
    root = check(text)
    found = {item.key: value_of(text, item) for item in items(text, root)}
    assert found == meaning(text)
    for item in items(text, root):
        listed = [value_of(text, inner) for inner in items(text, item.value)]
        value = found[item.key]
        assert listed == (list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [])


@pytest.mark.parametrize("name", EDITS)
def test_i7_a_file_that_was_not_there_is_made_and_goes_again(name: str) -> None:
    edit = EDITS[name]
    made = edit.put(None)
    assert meaning(made) == {"hooks": {event: [entry] for event, entry in edit.wanted.items()}, **edit.needs}
    assert edit.put(made) == made
    assert edit.drop(made) is None


@pytest.mark.parametrize(
    "before",
    [
        "{}",
        "{ }",
        "\ufeff{\n}\n",
        '{"model": "x"}',
        '{"hooks": {}}',
        '{\n  "hooks": {\n  }\n}',
        '{"hooks": {"PreCompact": []}}',
        '{"hooks": {"PreCompact": [ \n ]}, "model": "x"}\r\n',
        '{\r\n\t"hooks": {\r\n\t\t"PreCompact": [\r\n\t\t\t{"hooks": []}\r\n\t\t]\r\n\t}\r\n}\r\n',
    ],
)
def test_i7_what_was_empty_stays_and_what_was_made_goes(before: str) -> None:
    edit = EDITS["claude .claude/settings.json"]
    assert edit.drop(edit.put(before)) == before


@pytest.mark.parametrize("before", ['{\n  "version": 1\n}\n', '{"hooks": {}, "version": 1}', '{ "version": 1 }'])
def test_i7_a_file_of_cursor_that_was_there_is_not_taken_for_one_that_was_made(before: str) -> None:
    edit = EDITS["cursor .cursor/hooks.json"]
    assert edit.drop(edit.put(before)) == before


def test_i7_what_is_put_in_is_indented_like_the_rest() -> None:
    before = '{\n    "model": "x",\n    "hooks": {\n        "Stop": []\n    }\n}\n'
    edit = EDITS["cursor .cursor/hooks.json"]
    put = edit.put(before.replace('"model": "x"', '"version": 1'))
    assert '\n        "sessionStart": [\n            {"command"' in put
    assert put.endswith("\n        ]\n    }\n}\n")


@pytest.mark.parametrize("name", EDITS)
def test_i7_what_others_add_afterwards_stays(name: str) -> None:
    edit = EDITS[name]
    event = next(iter(edit.wanted))
    document = meaning(edit.put(None))
    document["theirs"] = True
    document["hooks"][event].insert(0, FOREIGN)
    after = edit.drop(json.dumps(document, indent=4))
    assert after is not None
    assert meaning(after) == {"hooks": {event: [FOREIGN]}, "theirs": True, **edit.needs}


def test_i7_a_file_that_its_client_has_written_anew_loses_only_what_is_ours() -> None:
    edit = EDITS["claude .claude/settings.json"]
    before = {"permissions": {"allow": ["Bash(ls)"]}, "hooks": {"Stop": [{"hooks": [FOREIGN]}]}}
    for indent in (1, 4):
        after = edit.drop(json.dumps(meaning(edit.put(json.dumps(before))), indent=indent, sort_keys=True))
        assert after is not None
        assert meaning(after) == before


@pytest.mark.parametrize("name", EDITS)
def test_i7_older_entries_are_replaced_where_they_stand_and_strays_go(name: str) -> None:
    edit = EDITS[name]
    first, second, *_ = edit.wanted
    old = {"type": "command", "command": f"holdfast prime --old --hook {edit.client}"}
    stale = {
        **edit.needs,
        "hooks": {
            first: [{"hooks": [old]}, FOREIGN, {"hooks": [old]}],
            second: [{"matcher": "x", "hooks": [FOREIGN, old]}],
            "NoLonger": [{"hooks": [old]}],
        },
    }
    put = meaning(edit.put(json.dumps(stale)))
    assert put["hooks"].pop(first) == [edit.wanted[first], FOREIGN]
    assert put["hooks"].pop(second) == [{"matcher": "x", "hooks": [FOREIGN]}, edit.wanted[second]]
    assert put["hooks"].pop("NoLonger", []) == []
    assert put["hooks"] == {event: [edit.wanted[event]] for event in list(edit.wanted)[2:]}


def test_i7_the_hooks_of_another_client_are_not_ours() -> None:
    claude, codex = EDITS["claude .claude/settings.json"], EDITS["codex .codex/hooks.json"]
    assert codex.drop(claude.put(None)) == claude.put(None)
    both = codex.put(claude.put("{}"))
    assert codex.drop(both) == claude.put("{}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"a": 1,}', "not JSON"),
        ('{"a": NaN}', "NaN is not a number"),
        ('// mine\n{"a": 1}', "not JSON"),
        ("[]", "not an object"),
        ("[" * 100_000, "not JSON"),
        ('{"hooks": []}', '"hooks" is not one object'),
        ('{"hooks": {}, "hooks": {}}', '"hooks" is not one object'),
        ('{"hooks": {"PreCompact": {}}}', "for PreCompact are not one list"),
        ('{"hooks": {"PreCompact": [], "PreCompact": []}}', "for PreCompact are not one list"),
    ],
)
def test_i7_a_file_with_no_place_for_our_hooks_is_refused(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        EDITS["claude .claude/settings.json"].put(text)
    assert caught.value.hint
    assert ("comments" in caught.value.hint) == text.startswith("//")


def test_i7_cursor_needs_the_version_that_it_insists_on() -> None:
    with pytest.raises(Invalid, match=r'lacks "version": 1'):
        EDITS["cursor .cursor/hooks.json"].put("{}")
