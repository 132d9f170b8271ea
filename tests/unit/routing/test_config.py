"""Reading the settings: every key, every bad value with its line, other spellings, and an answer for any text."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domains.routing.config import Config
from holdfast.domains.routing.files import read_config

SECOND = 1_000_000


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "task_store:\nlimits:\n"])
def test_a_file_that_says_nothing_is_all_defaults(text: str) -> None:
    assert read_config(text, "c.yaml") == (Config(), [])
    config = Config()
    assert (config.prefix, config.claim_timeout, config.default_grimoire) == ("hf", 1800 * SECOND, None)
    assert (config.retention_days, config.soft_delete_days) == (30, 7)
    assert (config.max_title, config.max_body, config.max_tags) == (500, 262_144, 64)


FULL = """\
prefix: web2
claim_timeout: 45m
default_grimoire: build
task_store:
  retention_days: 0.5
  soft_delete_days: never
  close_threads_first: true
limits:
  max_title: 100
  max_body: 1000
  max_tags: 5
"""


def test_every_key_is_read() -> None:
    config, problems = read_config(FULL, "c.yaml")
    assert problems == []
    assert config == Config("web2", 2700 * SECOND, "build", 0.5, None, True, 100, 1000, 5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=Config) == config


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30m", 1800),
        ("90s", 90),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("1d2h3m4s", 93_784),
        ("90", 90),
        ("0.5", 0.5),
        ("1e2", 100),
        ("'45m'", 2700),
        ("36525d", 3_155_760_000),
    ],
)
def test_a_duration_is_text_with_units_or_a_number_of_seconds(written: str, seconds: float) -> None:
    config, problems = read_config(f"claim_timeout: {written}", "c.yaml")
    assert problems == []
    assert config is not None
    assert config.claim_timeout == round(seconds * SECOND)
    assert type(config.claim_timeout) is int


@pytest.mark.parametrize("written", ["never", "null", "~", ""])
def test_t16_retention_can_be_switched_off(written: str) -> None:
    config, problems = read_config(f"task_store:\n  retention_days: {written}\n", "c.yaml")
    assert problems == []
    assert config == Config(retention_days=None)


def test_t16_zero_days_are_not_never() -> None:
    config, _ = read_config("task_store: {retention_days: 0, soft_delete_days: 0}", "c.yaml")
    assert config == Config(retention_days=0, soft_delete_days=0)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("prefix: HF", 1, "prefix must be 1 to 16"),
        ("prefix: ''", 1, "prefix must be"),
        ("prefix: 12", 1, "prefix must be"),
        ("prefix: " + "a" * 17, 1, "prefix must be"),
        ('prefix: "a\\n"', 1, "prefix must be"),
        ("claim_timeout: 0", 1, "claim_timeout must be a duration"),
        ("claim_timeout: -5", 1, "not -5"),
        ("claim_timeout: ''", 1, "claim_timeout must be"),
        ("claim_timeout:", 1, "not nothing"),
        ("claim_timeout: soon", 1, "not 'soon'"),
        ("claim_timeout: 30m1h", 1, "not '30m1h'"),
        ("claim_timeout: 1.5h", 1, "not '1.5h'"),
        ("claim_timeout: .nan", 1, "not '.nan'"),
        ("claim_timeout: 1e999", 1, "not inf"),
        ("claim_timeout: 36526d", 1, "up to 100 years"),
        ("claim_timeout: true", 1, "not true"),
        ("claim_timeout: {a: 1}", 1, "not a mapping"),
        ("default_grimoire:", 1, "default_grimoire must be text"),
        ("default_grimoire: ''", 1, "default_grimoire is empty"),
        ("prefix: a\ntask_store:\n  retention_days: -1\n", 3, "task_store.retention_days must be a number of days"),
        ("task_store:\n  soft_delete_days: week\n", 2, "or never, not 'week'"),
        ("task_store:\n  retention_days: 1e999\n", 2, "not inf"),
        ("task_store:\n  retention_days: false\n", 2, "not false"),
        ("task_store: 30\n", 1, "task_store must be a mapping"),
        ("limits: [a]\n", 1, "limits must be a mapping"),
        ("limits:\n  max_title: 0\n", 2, "limits.max_title must be an integer"),
        ("limits:\n  max_tags: 1.5\n", 2, "not 1.5"),
        ("limits:\n  max_body: 1MB\n", 2, "not '1MB'"),
        ("limits:\n  max_tags: 9999999999\n", 2, "from 1 to 1000000000"),
        ("- a\n", 1, "must be a mapping of settings, not a list"),
        ("prefix: a\nprefix: b\n", 2, "duplicate key 'prefix'"),
        ("prefix: [\n", 1, "not closed before the end"),
    ],
)
def test_a_bad_value_is_an_error_with_its_line_and_there_is_no_config(text: str, line: int, words: str) -> None:
    config, problems = read_config(text, "c.yaml")
    assert config is None
    [problem] = problems
    assert (problem.file, problem.line, problem.severity) == ("c.yaml", line, "error")
    assert words in problem.message


def test_all_bad_values_are_reported() -> None:
    config, problems = read_config("prefix: A\nclaim_timeout: x\nlimits:\n  max_tags: -1\n", "c.yaml")
    assert config is None
    assert [problem.line for problem in problems] == [1, 2, 4]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("colour: red", 1, "unknown key 'colour' is ignored"),
        ("claim_timout: 5m", 1, "did you mean 'claim_timeout'?"),
        ("limits:\n  max_titel: 5\n", 2, "did you mean 'limits.max_title'?"),
        ("retention_days: 5", 1, "write 'task_store.retention_days'"),
        ("task_store:\n  claim_timeout: 5m\n", 2, "write 'claim_timeout'"),
        ("store:\n  claimTimeoutMinutes: 30\n", 2, "write 'claim_timeout', such as 30m"),
        ("store:\n  taskRetentionDays: 30\n", 2, "write 'task_store.retention_days'"),
        ("store:\n  taskSoftDeleteDays: 7\n", 2, "write 'task_store.soft_delete_days'"),
        ("store:\n  eventRetentionHours: 7\n", 2, "there is no such setting"),
        ("store:\n  workflowRetentionDays: 7\n", 2, "there is no such setting"),
        ("{store: {claimTimeoutMinutes: 5}}", 1, "write 'claim_timeout'"),
        ("logging: {level: {a: b}}", 1, "unknown key 'logging.level'"),
    ],
)
def test_an_unknown_key_warns_and_says_what_to_write(text: str, line: int, words: str) -> None:
    config, [problem] = read_config(text, "c.yaml")
    assert config == Config()
    assert (problem.line, problem.severity) == (line, "warning")
    assert words in problem.message


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60) | st.lists(st.sampled_from([*FULL.split(), "\n", "  ", ": ", "{", "]", "&a"])).map(" ".join)
)
def test_any_text_has_an_answer(text: str) -> None:
    config, problems = read_config(text, "c.yaml")
    assert (config is None) is any(problem.severity == "error" for problem in problems)
    assert all(problem.line >= 1 and problem.message for problem in problems)
    if config is not None:
        assert config.claim_timeout >= 1
