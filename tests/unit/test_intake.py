import time
from collections.abc import Sequence

import numpy as np
import pytest
from tiny import tiny_settings

from tba_hpc.config import RunConfig
from tba_hpc.distributed.round import HEADER
from tba_hpc.distributed.trainer_exchange import Arrival
from tba_hpc.intake import Arrived, Intake, LockstepIntake
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.settings import validate
from tba_hpc.trajectory import Trajectory, TrajectoryBatch

N_SEARCHERS = 2


class ScriptedExchange:
    """Hands out arrivals, the first of them at once and the others one a wait."""

    def __init__(self, at_once: Sequence[Arrival], later: Sequence[Arrival]) -> None:
        self._at_once, self.later = list(at_once), list(later)

    def arrivals(self) -> list[Arrival]:
        arrivals, self._at_once = self._at_once, []
        return arrivals

    def wait_for_arrivals(self, seconds: float) -> list[Arrival]:
        return self.arrivals() or [self.later.pop(0) for _ in self.later[:1]]


def trajectory(serial: int, version: int, prompt_id: int = 0) -> Trajectory:
    tokens = np.array([serial], np.int32)
    logprobs = np.zeros(1, np.float32)
    return Trajectory(
        prompt_id, tokens, tokens, logprobs, logprobs, 0.0, False, True, 1.0, version, 0, serial % N_SEARCHERS
    )


def arrival(sync, *serials: Sequence[int], version: int = 0) -> Arrival:
    """What each searcher brings, by serial number of the trajectory."""
    batches = [TrajectoryBatch.from_trajectories([trajectory(s, version) for s in own]) for own in serials]
    headers = np.zeros(len(serials), HEADER)
    headers["idle_seconds"] = [3.0, 44.0]
    return Arrival(sync, batches, headers)


@pytest.fixture
def make(tmp_path):
    def make(exchange, synchronous=False, timeout=0.2, start_size=4, first_step=0, reference=None, **trainer):
        settings = tiny_settings("model", "run")
        settings["buffer"] |= {"max_per_query": 1000, "start_size": start_size}
        settings["trainer"] |= trainer
        settings["distributed"] |= {"timeout_seconds": timeout}
        settings["rollout"] |= {"samples_per_query": 4}
        settings["schedule"] = "synchronous" if synchronous else "asynchronous"
        if trainer.get("lag"):
            settings["schedule"] = "fixed_lag"
        settings["reference"] = reference or {}
        config = validate(RunConfig, settings, "")
        buffer = ReplayBuffer(config.buffer, tmp_path / "buffer", 0)
        arrived = Arrived(np.zeros(N_SEARCHERS, np.int64), 0, 0)
        if config.in_lockstep:
            intake = LockstepIntake(config, exchange, buffer, arrived, first_step=first_step)
        else:
            intake = Intake(config, exchange, buffer, arrived)
        return intake, buffer

    return make


def serials(buffer, n):
    return sorted(t.response_tokens[0] for t in buffer.sample(1, n, 0, recent_only=True).trajectories)


def test_training_starts_when_the_first_trajectories_are_there(make):
    exchange = ScriptedExchange(
        [arrival(1, [1], [2])], [arrival(1, [], []), arrival(1, [], [3, 4]), arrival(1, [5], [])]
    )
    intake, buffer = make(exchange)
    assert intake.prepare(0) >= 0
    assert len(buffer) == intake.arrived.trajectories == 4
    assert len(exchange.later) == 1


def test_with_data_there_nothing_is_waited_for(make):
    exchange = ScriptedExchange([arrival(1, [1, 2], [3, 4])], [arrival(1, [5], [])])
    intake, _ = make(exchange)
    intake.prepare(0)
    intake.prepare(1)
    assert len(exchange.later) == 1


def test_max_reuse_lets_the_trainer_run_ahead_only_so_far(make):
    later = [arrival(1, range(10 * i, 10 * i + 10), []) for i in range(1, 9)]
    exchange = ScriptedExchange([], later)
    intake, _ = make(exchange, max_reuse=2)
    for step, needed in [(0, 10), (1, 20), (2, 30), (3, 40)]:  # 16 a step, each twice
        intake.prepare(step)
        assert intake.arrived.trajectories == needed


def test_duplicates_count_as_received(make):
    intake, buffer = make(ScriptedExchange([arrival(1, [1, 2], [3]), arrival(1, [3], [])], []))
    intake.prepare(0)
    assert (intake.arrived.trajectories, intake.arrived.duplicates, len(buffer)) == (4, 1, 3)


def test_what_came_since_the_latest_sync_is_kept_for_the_metrics(make):
    intake, _ = make(ScriptedExchange([arrival(1, [1], [2]), arrival(2, [3], []), arrival(2, [], [4])], []))
    intake.prepare(0)
    latest = TrajectoryBatch.concatenate(intake.latest_sync)
    assert latest.response_tokens.tolist() == [3, 4]


def test_silence_is_an_error_that_tells_about_each_searcher(make):
    intake, _ = make(ScriptedExchange([arrival(1, [1], [2])], []))
    with pytest.raises(TimeoutError) as caught:
        intake.prepare(0)
    message = str(caught.value)
    assert message.startswith("the data of step 0 is not complete, and for 0 s none came; ")
    assert message.endswith("seconds since a generation batch: searcher 0: 3, searcher 1: 44")


def test_silence_from_the_start_is_told_as_such(make):
    intake, _ = make(ScriptedExchange([], []))
    with pytest.raises(TimeoutError, match="no searcher was ever heard of"):
        intake.prepare(0)


class SlowExchange(ScriptedExchange):
    """Lets half the time limit pass at each wait."""

    def wait_for_arrivals(self, seconds: float) -> list[Arrival]:
        time.sleep(0.1)
        return super().wait_for_arrivals(seconds)


def test_as_long_as_something_comes_the_trainer_waits(make):
    exchange = SlowExchange([], [arrival(1, [serial], []) for serial in range(6)])
    intake, _ = make(exchange, start_size=6)
    intake.prepare(0)  # takes three times the limit
    assert intake.arrived.trajectories == 6


def test_in_synchronous_mode_all_data_of_a_sync_goes_in_at_once_and_by_searcher(make):
    """What a sync needs: 2 steps × 4 queries × 4 samples = 32."""
    first, second = list(range(16)), list(range(100, 116))
    pieces = [
        arrival(1, [], second[:9]),
        arrival(1, first[:5], []),
        arrival(1, [], second[9:]),
        arrival(1, first[5:], []),
    ]
    exchange = ScriptedExchange(pieces[:2], pieces[2:])
    intake, buffer = make(exchange, synchronous=True)
    intake.prepare(0)
    assert intake.arrived.trajectories == 32
    assert TrajectoryBatch.concatenate(intake.latest_sync).response_tokens.tolist() == first + second
    assert serials(buffer, 16) == first


def test_in_synchronous_mode_only_the_first_step_after_a_sync_waits(make):
    exchange = ScriptedExchange([arrival(1, range(16), range(16, 32))], [])
    intake, buffer = make(exchange, synchronous=True)
    intake.prepare(0)
    assert intake.prepare(1) == 0
    exchange.later = [arrival(2, range(50, 66), range(66, 82), version=2)]
    intake.prepare(2)
    assert serials(buffer, 16) == list(range(50, 66))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_steps_of_a_sync_learn_from_every_fresh_query_once(make, k):
    """Four queries a step. Queries 0, 1, … are searcher 0's, 100, 101, … searcher 1's; each has four responses."""
    intake, buffer = make(ScriptedExchange([], []), synchronous=True, sync_every=k)
    for sync in range(2):
        queries = [[100 * searcher + 10 * sync + i for i in range(2 * k)] for searcher in range(N_SEARCHERS)]
        batches = [
            TrajectoryBatch.from_trajectories([trajectory(s, sync * k, q) for q in own for s in range(4)])
            for own in queries
        ]
        intake._exchange.later = [Arrival(sync, batches, np.zeros(N_SEARCHERS, HEADER))]
        fresh = queries[0] + queries[1]
        for i in range(k):
            step = sync * k + i
            intake.prepare(step)
            batch = buffer.sample(4, 4, step, recent_only=True)
            assert sorted(set(batch.trajectories.rows["prompt_id"].tolist())) == fresh[4 * i : 4 * i + 4]
            assert sorted(batch.trajectories.response_tokens.tolist()) == sorted(4 * [0, 1, 2, 3])
        assert intake.arrived.trajectories == len(buffer) == 16 * k * (sync + 1)


@pytest.mark.parametrize("synchronous", [False, True])
def test_as_long_as_the_trainer_waits_it_is_asked_whether_to_give_up(make, synchronous):
    later = [arrival(1, range(8), []), arrival(1, [], range(8, 24)), arrival(1, range(24, 32), [])]
    intake, _ = make(ScriptedExchange([], later), synchronous=synchronous, start_size=32)
    asked = []
    assert intake.prepare(0, lambda: bool(asked.append(intake.arrived.trajectories))) is not None
    assert len(asked) == 2
    assert intake.prepare(1, lambda: bool(asked.append(intake.arrived.trajectories))) is not None
    assert len(asked) == 2, "nothing was waited for"


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_wait_that_is_given_up_leaves_the_step_undone(make, synchronous):
    later = [arrival(1, range(8), []), arrival(1, [], range(8, 24)), arrival(1, range(24, 32), [])]
    exchange = ScriptedExchange([], later)
    intake, buffer = make(exchange, synchronous=synchronous, start_size=32)
    assert intake.prepare(0, give_up=lambda: len(exchange.later) == 1) is None
    assert len(buffer) == (0 if synchronous else 24)
    assert intake.arrived.prompts.tolist() == ([0, 0] if synchronous else [2, 4])


@pytest.mark.parametrize("synchronous", [False, True])
def test_prompts_are_counted_by_searcher_when_their_trajectories_are_taken_in(make, synchronous):
    exchange = ScriptedExchange([arrival(1, range(16), []), arrival(1, [], range(16, 32))], [])
    intake, _ = make(exchange, synchronous=synchronous)
    intake.prepare(0)
    assert intake.arrived.prompts.tolist() == [4, 4]


@pytest.mark.parametrize(("synchronous", "held"), [(False, 8), (True, 0)])
def test_what_the_last_round_brings_is_taken_in_unless_it_will_be_sampled_again(make, synchronous, held):
    intake, buffer = make(ScriptedExchange([arrival(1, range(8), [])], []), synchronous=synchronous)
    intake.finish()
    assert len(buffer) == intake.arrived.trajectories == held
    assert intake.arrived.prompts.tolist() == [held // 4, 0]


def test_stale_data_in_synchronous_mode_is_a_bug(make):
    exchange = ScriptedExchange([arrival(1, range(16), range(16, 32), version=7)], [])
    intake, _ = make(exchange, synchronous=True)
    with pytest.raises(AssertionError, match="in its turn"):
        intake.prepare(0)


@pytest.mark.parametrize("first_step", [0, 6])
def test_with_a_fixed_lag_every_step_learns_from_the_weights_of_so_many_steps_before(make, first_step):
    """Two steps a sync, L = 4: the searchers are two syncs ahead, searcher 1 is the slower one."""
    own = [list(range(100 * block, 100 * block + 16)) for block in range(5)]
    other = [[50 + serial for serial in block] for block in own]
    versions = [first_step, first_step, first_step, first_step + 2, first_step + 4]

    def batch(blocks, chosen):
        return TrajectoryBatch.from_trajectories([trajectory(s, versions[b]) for b in chosen for s in blocks[b]])

    empty, headers = TrajectoryBatch.empty(), np.zeros(N_SEARCHERS, HEADER)
    rounds = [[batch(own, [0, 1]), empty], [batch(own, [2]), batch(other, [0])], [empty, batch(other, [1, 2])]]
    rounds += [[batch(own, [3]), batch(other, [3, 4])], [batch(own, [4]), empty]]
    exchange = ScriptedExchange([], [Arrival(1, list(batches), headers) for batches in rounds])
    intake, buffer = make(exchange, lag=4, first_step=first_step)
    for block in range(5):
        for step in range(first_step + 2 * block, first_step + 2 * block + 2):
            assert intake.prepare(step) is not None
            half = own if step % 2 == 0 else other
            assert serials(buffer, 16) == half[block]
            versions_now = buffer.sample(1, 16, 0, recent_only=True).trajectories.rows["policy_version"]
            assert set(versions_now) == {max(step - step % 2 - 4, first_step)}
        assert intake.arrived.prompts.tolist() == [4 * (block + 1)] * 2, "what is ahead does not count yet"


def test_before_weights_are_published_no_searcher_may_have_missed_the_last(make):
    late, now = arrival(1, [], []), arrival(1, [], [])
    late.headers["policy_version"], now.headers["policy_version"] = [4, 2], [4, 4]
    exchange = ScriptedExchange([], [late, now])
    intake, _ = make(exchange, lag=4)
    assert intake.wait_until_in_use(4)
    assert exchange.later == []
    assert intake.wait_until_in_use(4), "known already"
    assert not intake.wait_until_in_use(6, give_up=lambda: True)


DROPPING = {"reset_every": 2, "stale": "drop"}


def scored_by(version, *serials):
    batch = arrival(1, serials, [])
    batch.batches[0].rows["reference_version"] = version
    return batch


def test_what_an_earlier_reference_has_scored_is_left_out_if_the_run_says_so(make):
    exchange = ScriptedExchange([scored_by(0, *range(8))], [])
    intake, buffer = make(exchange, start_size=4, reference=DROPPING)
    assert intake.prepare(0) is not None
    intake.reset_reference(2)
    assert len(buffer) == 0
    exchange.later = [scored_by(0, *range(8, 16)), scored_by(2, 20, 21), scored_by(0, 30), scored_by(2, 22, 23)]
    assert intake.prepare(1) is not None
    assert sorted(buffer.contents()[1].response_tokens.tolist()) == [20, 21, 22, 23]
    assert intake.arrived.trajectories == 21, "all were received"


def test_else_it_stays_to_be_scored_anew(make):
    exchange = ScriptedExchange([scored_by(0, *range(8))], [])
    intake, buffer = make(exchange, reference={"reset_every": 2})
    intake.prepare(0)
    intake.reset_reference(2)
    assert len(buffer) == 8
