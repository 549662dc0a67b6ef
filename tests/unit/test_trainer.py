"""The trainer's loops with everything around them replaced by a record of what it is asked to do."""

import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, PropertyMock

import numpy as np
import pytest
from tiny import tiny_settings

from tba_hpc.config import RunConfig
from tba_hpc.settings import validate
from tba_hpc.trainer import Trainer, follow
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch


def config(steps, **changes):
    settings = tiny_settings("model", Path("run")) | changes
    settings["trainer"] |= {"steps": steps, "batch_size": 2, "samples_per_query": 2}
    return validate(RunConfig, settings, "")


def sampled():
    tokens, logprobs = np.zeros(1, np.int32), np.zeros(1, np.float32)
    row = Trajectory(0, tokens, tokens, logprobs, logprobs, 0.0, False, True, 1.0, 0, 0, 0)
    return SampledBatch(TrajectoryBatch.from_trajectories([row] * 2), np.zeros(2, np.int32), np.ones(2, bool))


class World:
    """What is around a trainer. `reasons` are what the departure says each time it is asked, then nothing."""

    def __init__(self, config, steps_done=0, reasons=(), reference=None):
        self.all = MagicMock()
        self.all.group.size, self.all.engine.step.return_value, self.all.intake.prepare.return_value = 1, {}, 0.0
        self.all.buffer.sample.return_value = sampled()
        left = list(reasons)
        self.all.departure.reason.side_effect = lambda _: left.pop(0) if left else None
        parts = [getattr(self.all, name) for name in PARTS]
        self.trainer = Trainer(config, *parts, reference, steps_done)

    def calls(self, *names):
        """Which of these were called, with their first argument if they have one."""
        return [(name, *args[:1]) for name, args, _ in self.all.mock_calls if name in names]


PARTS = ("engine", "group", "buffer", "intake", "exchange", "monitor", "checkpointer", "departure")
ENDING = ("group.send_stop", "group.close", "exchange.stop", "intake.finish", "checkpointer.save_last")


def test_the_others_hear_from_a_trainer_that_waits_and_are_released_at_the_end():
    world = World(config(3))
    world.all.intake.prepare.side_effect = lambda _, give_up: 0.0 if give_up() is False else None
    world.trainer.run()
    assert [name for name, _, _ in world.all.group.mock_calls] == ["send_idle", "send"] * 3 + ["send_stop", "close"]


def test_a_run_ends_with_the_last_round_in_its_buffer_and_all_of_it_saved():
    world = World(config(3))
    world.trainer.run()
    *ending, (_, saved) = world.calls(*ENDING)
    assert [name for name, *_ in ending] == list(ENDING[:-1])
    assert saved == world.trainer.steps_done == 3
    assert world.trainer.reason_to_leave is None


def test_a_run_goes_on_after_the_steps_that_were_done_before():
    world = World(config(5), steps_done=3)
    world.trainer.run()
    assert world.calls("intake.prepare", "checkpointer.step_done") == [
        ("intake.prepare", 3),
        ("checkpointer.step_done", 4),
        ("intake.prepare", 4),
    ]


def test_a_run_that_has_nothing_left_to_do_is_not_saved_again():
    world = World(config(3), steps_done=3)
    world.trainer.run()
    assert world.calls(*ENDING) == [(name,) for name in ENDING[:-1]]


def test_a_run_leaves_between_two_steps():
    world = World(config(9), reasons=[None, None, "asked to", None])
    world.trainer.run()
    assert world.calls("intake.prepare", "checkpointer.save_last") == [
        ("intake.prepare", 0),
        ("intake.prepare", 1),
        ("checkpointer.save_last", 2),
    ]
    assert world.trainer.reason_to_leave == "asked to"


def test_a_run_leaves_while_it_waits_for_data():
    world = World(config(9), reasons=[None, "asked to"])
    world.all.intake.prepare.side_effect = lambda _, give_up: None if give_up() else 0.0
    world.trainer.run()
    assert world.calls(*ENDING)[-1] == ("checkpointer.save_last", 0)
    assert world.trainer.reason_to_leave == "asked to"
    assert not world.calls("buffer.sample")


@pytest.mark.parametrize(("asked_before", "leaves_after"), [(1, 0), (2, 2), (3, 4)])
def test_a_synchronous_run_is_saved_between_two_syncs_only(asked_before, leaves_after):
    """With k = 2 the second question is asked after step 2."""
    world = World(config(9, schedule="synchronous"), reasons=[None] * (asked_before - 1) + ["asked to"])
    world.trainer.run()
    assert world.calls("checkpointer.save_last") == [("checkpointer.save_last", leaves_after)]
    assert world.calls("checkpointer.step_done") == [
        ("checkpointer.step_done", steps) for steps in range(2, leaves_after + 1, 2)
    ]


@pytest.mark.parametrize("schedule", ["asynchronous", "synchronous"])
def test_the_reference_is_reset_for_all_at_the_same_steps(schedule):
    """Trainers by their own copy, searchers by the sync of the same step."""
    reference = MagicMock(version=0)
    reference.current.side_effect = lambda share: share
    world = World(config(9, schedule=schedule, reference={"reset_every": 4}), reference=reference)
    world.trainer.run()
    published = {call.args[0]: call.args[2] for call in world.all.exchange.publish.mock_calls}
    assert published == {2: False, 4: True, 6: False, 8: True}
    assert [call.args[1] for call in reference.reset.mock_calls] == [4, 8]
    assert world.calls("intake.reset_reference") == [("intake.reset_reference", step) for step in (4, 8)]


def test_a_reset_waits_for_the_sync_before_and_comes_in_time_after_a_late_one():
    """The sync of step 4 is late by a step, as the one before takes long; that of step 6 resets and is not."""
    world = World(config(7, reference={"reset_every": 6}))
    type(world.all.exchange).ready_to_publish = PropertyMock(side_effect=[True, False, True, True])
    world.trainer.run()
    assert world.calls("exchange.publish") == [("exchange.publish", step) for step in (2, 5, 6)]
    assert world.calls("exchange.wait_until_published") == [("exchange.wait_until_published",)]


def test_nothing_reaches_the_loss_as_an_earlier_reference_scored_it():
    reference, rescored = MagicMock(version=2), sampled()
    reference.current.return_value = rescored
    world = World(config(1), reference=reference)
    world.trainer.run()
    (call,) = world.all.engine.step.mock_calls
    assert call.args[0] is rescored


@pytest.mark.parametrize(("every", "steps"), [(None, []), (2, [2, 4, 6, 8]), (3, [4, 6]), (5, [6])])
def test_evaluations_are_asked_for_at_the_first_sync_that_is_due(every, steps):
    world = World(config(9, evaluation={"problems": 8, "every_steps": every}))
    world.trainer.run()
    assert [call.args[0] for call in world.all.exchange.publish.mock_calls if call.args[3]] == steps


def test_the_others_leave_the_group_once_trainer_0_has_said_so():
    messages = [(0, 2, sampled()), (1, 2, sampled()), None]
    engine, closed = MagicMock(), []
    engine.step.return_value = {}
    group = SimpleNamespace(receive=lambda: messages.pop(0), close=lambda: closed.append(len(messages)))
    follow(config(2), engine, group, None, interrupted=lambda: False)
    assert engine.step.call_count == 2
    assert closed == [0]


def test_another_trainer_that_is_asked_to_leave_says_so_while_it_waits_for_a_batch():
    engine, group, told = MagicMock(), MagicMock(), threading.Event()
    group.tell_interrupted.side_effect = told.set
    group.receive.side_effect = lambda: told.wait(30) and None
    follow(config(2), engine, group, None, interrupted=lambda: True)
    assert told.is_set()
    assert group.close.called
