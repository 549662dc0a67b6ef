import json
import shutil

import pytest
from tiny import tiny_settings

from tba_hpc.config import RunConfig
from tba_hpc.preflight import check_inputs
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.trajectory import Prompt


class OneLongPrompt(Arithmetic):
    """Two prompts are longer than the others, one of each split, and only those past the first few thousand."""

    def size(self, split):
        return 5000 if split == "train" else 300

    def prompt(self, split, index):
        text = "123456789+1=" if index == self.size(split) - 1 else "1+1="
        return Prompt(id=index, text=text, answer="")


@pytest.fixture
def model(tiny_model, tmp_path):
    """What of the model can be read without weights; there are none."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def check(model, task=None, n_searchers=3, reference=None, evaluation=None, **rollout):
    settings = tiny_settings(model, "run")
    settings["model"]["reference"] = reference and str(reference)
    settings["rollout"] |= rollout
    settings["evaluation"] = evaluation or {"problems": 8}
    check_inputs(RunConfig.model_validate(settings), task or Arithmetic({"max_operand": 20}), n_searchers)


def test_a_run_that_can_start_is_let_through_without_a_look_at_weights(model):
    check(model)
    check(model, reference=model, evaluation={"problems": 0})


def test_a_prompt_that_is_too_long_is_named(model):
    check(model, max_prompt_tokens=7)
    with pytest.raises(ConfigError, match=r"train split of task Arithmetic: prompt 1 \('.*'\) has 7 tokens; 1 to 6"):
        check(model, max_prompt_tokens=6)


def test_every_training_prompt_is_looked_at(model):
    with pytest.raises(ConfigError, match=r"train split of task OneLongPrompt: prompt 4999 .* has 13 tokens; 1 to 8"):
        check(model, OneLongPrompt({}), max_prompt_tokens=8)


def test_prompts_of_the_evaluation_are_looked_at_as_far_as_it_goes(model):
    class ShortTraining(OneLongPrompt):
        def size(self, split):
            return 300

        def prompt(self, split, index):
            return super().prompt(split, index if split == "test" else 0)

    task = ShortTraining({})
    for problems in (0, 299):
        check(model, task, evaluation={"problems": problems}, max_prompt_tokens=8)
    with pytest.raises(ConfigError, match="test split of task ShortTraining: prompt 299 "):
        check(model, task, evaluation={"problems": 300}, max_prompt_tokens=8)


def test_more_searchers_than_prompts_are_refused(model):
    task = Arithmetic({"max_operand": 1, "test_fraction": 0.5})
    with pytest.raises(ConfigError, match="training prompts are too few for 9 searchers"):
        check(model, task, n_searchers=9)


@pytest.mark.parametrize(("file", "message"), [("config.json", "language model"), ("tokenizer.json", "tokenizer")])
def test_a_folder_without_a_model_or_a_tokenizer_is_refused(model, file, message):
    (model / file).unlink()
    with pytest.raises(ConfigError, match=f"cannot load a {'causal ' if file == 'config.json' else ''}{message}"):
        check(model)


def test_texts_that_the_tokenizer_cannot_find_are_refused(model):
    with pytest.raises(ConfigError, match=r"stop = \['\+'\] cannot be found with this tokenizer"):
        check(model, stop=["+"])


def test_a_reference_that_is_not_there_is_refused(model, tmp_path):
    with pytest.raises(ConfigError, match="no_such_model"):
        check(model, reference=tmp_path / "no_such_model")


@pytest.mark.parametrize("which", ["policy", "reference"])
def test_a_model_of_too_few_positions_is_refused(model, tmp_path, which):
    small = tmp_path / "small"
    shutil.copytree(model, small)
    description = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(description | {"max_position_embeddings": 21}))
    with pytest.raises(ConfigError, match=r"max_prompt_tokens = 16 is more than the 15 positions .*small"):
        check(small if which == "policy" else model, reference=small)
    check(small, max_prompt_tokens=15)
    with pytest.raises(ConfigError, match=r"max_response_tokens = 21 leaves no room for a prompt"):
        check(small, max_response_tokens=21)
