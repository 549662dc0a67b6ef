"""The trainer's loops with everything around them replaced by a record of what it is asked to do."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, call

import numpy as np
from tiny import tiny_settings

from tba_hpc.config import RunConfig
from tba_hpc.settings import validate
from tba_hpc.trainer import Trainer, follow
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch


def config(steps):
    settings = tiny_settings("model", Path("run"))
    settings["trainer"] |= {"steps": steps, "batch_size": 2, "samples_per_query": 2}
    return validate(RunConfig, settings, "")


def sampled():
    tokens, logprobs = np.zeros(1, np.int32), np.zeros(1, np.float32)
    row = Trajectory(0, tokens, tokens, logprobs, logprobs, 0.0, False, True, 1.0, 0, 0, 0)
    return SampledBatch(TrajectoryBatch.from_trajectories([row] * 2), np.zeros(2, np.int32), np.ones(2, bool))


def test_the_others_hear_from_a_trainer_that_waits_and_are_released_at_the_end():
    engine, group, buffer, intake, exchange = (MagicMock() for _ in range(5))
    group.size, engine.step.return_value, intake.prepare.return_value = 1, {}, 0.0
    buffer.sample.return_value = sampled()
    Trainer(config(3), engine, group, buffer, intake, exchange, MagicMock()).run()
    assert intake.prepare.mock_calls == [call(step, group.send_idle) for step in range(3)]
    assert [name for name, _, _ in group.mock_calls] == ["send"] * 3 + ["send_stop", "close"]


def test_the_others_leave_the_group_once_trainer_0_has_said_so():
    messages = [(0, 2, sampled()), (1, 2, sampled()), None]
    engine, closed = MagicMock(), []
    engine.step.return_value = {}
    group = SimpleNamespace(receive=lambda: messages.pop(0), close=lambda: closed.append(len(messages)))
    follow(config(2), engine, group)
    assert engine.step.call_count == 2
    assert closed == [0]
