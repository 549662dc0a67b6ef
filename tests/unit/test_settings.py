import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.schedules import Constant
from tba_hpc.settings import ConfigError, apply_overrides, did_you_mean, read_yaml, validate


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a=1", {"a": 1}),
        ("a.b.c=1", {"a": {"b": {"c": 1}}}),
        ("a=", {"a": None}),
        ("a=null", {"a": None}),
        ("a=x=y", {"a": "x=y"}),
        ("a='1'", {"a": "1"}),
        ('a="two words"', {"a": "two words"}),
        ("a=two words", {"a": "two words"}),
        ("a=[1, 2.5, x]", {"a": [1, 2.5, "x"]}),
        ("a={kind: constant, value: 0.5}", {"a": {"kind": "constant", "value": 0.5}}),
        ("a=true", {"a": True}),
        ("a=[1,", {"a": "[1,"}),
        ("a=x: y: z", {"a": "x: y: z"}),
        ("a=it's", {"a": "it's"}),
    ],
)
def test_an_override_is_a_dotted_key_and_a_yaml_value(override, expected):
    assert apply_overrides({}, [override]) == expected


def test_overrides_change_what_they_name_and_nothing_else():
    values = {"a": {"b": 1, "c": {"d": 2}}, "e": None}
    changed = apply_overrides(values, ["a.c.d=3", "e.f=4", "a.c.d=5"])
    assert changed == {"a": {"b": 1, "c": {"d": 5}}, "e": {"f": 4}}
    assert values == {"a": {"b": 1, "c": {"d": 2}}, "e": None}


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", "1E-5", ".00001"])
def test_numbers_in_scientific_notation_are_numbers(text):
    values = apply_overrides({}, [f"value={text}", "kind=constant"])
    assert validate(Constant, values, "").value == 1e-5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps", "override 'steps' is not of the form key=value"),
        ("=5", "override '=5' is not of the form key=value"),
        ("a.b.c=1", "override a.b.c: 7 is a single value and has no settings below it"),
        ("--ranks", "override '--ranks' is not of the form key=value"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused(override, message):
    with pytest.raises(ConfigError) as caught:
        apply_overrides({"a": {"b": 7}}, [override])
    assert str(caught.value) == message


names = st.text("abcdef_", min_size=1, max_size=4)
plain = st.integers() | st.booleans() | st.none()


@given(st.dictionaries(names, st.dictionaries(names, plain)), names, names, st.integers())
def test_any_value_can_be_put_anywhere(values, outer, inner, value):
    changed = apply_overrides(values, [f"{outer}.{inner}={value}"])
    assert changed[outer][inner] == value
    assert {key: item for key, item in changed.items() if key != outer} == {
        key: item for key, item in values.items() if key != outer
    }


def test_relative_paths_in_a_file_are_relative_to_the_file(tmp_path):
    folder = tmp_path / "configs"
    folder.mkdir()
    file = folder / "run.yaml"
    file.write_text("a: ./here\nb: {c: ../there}\nd: name/of-a-model\ne: /absolute\n")
    assert read_yaml(file) == {
        "a": str(folder / "here"),
        "b": {"c": str(tmp_path / "there")},
        "d": "name/of-a-model",
        "e": "/absolute",
    }


def test_relative_paths_in_overrides_are_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = ["a=./final", "b.c=../there", "d={e: ./x}", "f=configs/x", "g=.hidden", "h=/absolute"]
    assert apply_overrides({}, overrides) == {
        "a": str(tmp_path / "final"),
        "b": {"c": str(tmp_path.parent / "there")},
        "d": {"e": str(tmp_path / "x")},
        "f": "configs/x",
        "g": ".hidden",
        "h": "/absolute",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1, 2]", "holds list, not a mapping of settings"),
        (b"", "holds NoneType, not a mapping"),
        (b"a: [1", "is not valid YAML"),
        (b"\xff\xfe\xfa", "is not valid YAML"),
        (b"a: !!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, content, message):
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_yaml(file)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.yaml: No such file or directory"):
        read_yaml(tmp_path / "missing.yaml")


def test_a_name_that_does_not_exist_is_answered_with_the_nearest_and_all_that_do():
    assert did_you_mean("stpes", {"steps", "batch"}) == "did you mean 'steps'? allowed: batch, steps"
    assert did_you_mean("qqq", ["steps", "batch"]) == "allowed: batch, steps"
