import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tba_hpc.launch.overrides import override_words, parsed_grid, parsed_options
from tba_hpc.settings import ConfigError, apply_overrides

NOT_A_PATH = st.text().filter(lambda text: not text.startswith(("./", "../")))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NOT_A_PATH
NAMES = st.from_regex(r"[A-Za-z_][\w. -]{0,30}", fullmatch=True)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=8)


@given(VALUES)
@example("\n")
@example(["a\n\nb", {"c d": "e\u2028f"}, 1, 0.5, None, True])
def test_any_value_arrives_as_it_was(value):
    (word,) = override_words({"a.b": value})
    assert "\n" not in word
    assert apply_overrides({}, [word]) == {"a": {"b": value}}


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (1e-05, "x=1.0e-05"),
        ("1e-05", "x=1e-05"),
        (math.inf, "x=.inf"),
        (None, "x=null"),
        ("null", "x='null'"),
        ((0.5, 0.99), "x=[0.5, 0.99]"),
        (Path("a b/c"), "x=a b/c"),
        ("a, b", "x='a, b'"),
    ],
)
def test_values_are_written_as_a_person_would(value, word):
    assert override_words({"x": value}) == [word]


def test_words_stay_as_they_are():
    assert override_words(["trainer.steps=5", "run_dir=a b"]) == ["trainer.steps=5", "run_dir=a b"]


def test_what_yaml_does_not_know_is_refused():
    with pytest.raises(ConfigError, match="is not a value for a setting"):
        override_words({"x": object()})


def test_a_grid_is_read_with_types():
    words = ["seed=1,2", "trainer.adam_betas=[0.9, 0.95],[0.5, 0.99]", "task.name=arithmetic"]
    expected = {"seed": [1, 2], "trainer.adam_betas": [[0.9, 0.95], [0.5, 0.99]], "task.name": ["arithmetic"]}
    assert parsed_grid(words) == expected


def test_options_of_sbatch_may_have_no_value():
    assert parsed_options(["qos=long", "exclusive", "nice=5"]) == {"qos": "long", "exclusive": True, "nice": 5}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed"], "--grid seed is not of the form seed=1,2,3"),
        (["seed="], "--grid seed= is not of the form"),
        (["=1"], "--grid =1 is not of the form"),
        (["seed=1", "seed=2"], "--grid: seed is given more than once"),
        (["seed=[1"], "--grid seed: .* is not valid YAML"),
    ],
)
def test_a_grid_that_cannot_be_read_is_a_users_mistake(words, message):
    with pytest.raises(ConfigError, match=message):
        parsed_grid(words)
