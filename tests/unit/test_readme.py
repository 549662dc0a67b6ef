"""What README.md tells a user to type exists and would be accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tba_hpc.config import load_run_config, load_sft_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines()]
LOADERS = {"train": load_run_config, "sft": load_sft_config}


def test_there_are_commands_to_check():
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_scripts_and_checkpoints_exist(words):
    for word in words:
        if re.match(r"(tools|configs)/", word):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("words", [c for c in COMMANDS if {"train", "sft"} & set(c)], ids=" ".join)
def test_configurations_and_overrides_are_accepted(words):
    command = next(word for word in words if word in LOADERS)
    config, *rest = words[words.index(command) + 1 :]
    LOADERS[command](ROOT / config, [word for word in rest if "=" in word])
