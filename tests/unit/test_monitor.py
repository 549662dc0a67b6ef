from types import SimpleNamespace

import numpy as np
import pytest

from tba_hpc import monitor
from tba_hpc.config import LoggingConfig, RolloutConfig
from tba_hpc.distributed.round import HEADER
from tba_hpc.distributed.trainer_exchange import Arrival
from tba_hpc.intake import Arrived
from tba_hpc.monitor import COLUMNS, Monitor, SearcherRates, StepReport, batch_metrics, rollout_metrics, staleness
from tba_hpc.replay.buffer import BufferStats
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch

ROLLOUT = RolloutConfig(
    queries_per_batch=1, samples_per_query=4, temperature=0.7, max_prompt_tokens=8, max_response_tokens=8
)


def trajectory(version=0, reward=0.0, length=1, finished=True, gap=0.0, temperature=0.7):
    tokens, logprobs = np.zeros(length, np.int32), np.full(length, -1.0, np.float32)
    reference = np.full(length, -1.0 - gap, np.float32)
    correct = reward > 0.5
    return Trajectory(0, tokens, tokens, logprobs, reference, reward, correct, finished, temperature, version, 0, 0)


def sampled(*trajectories, recent=True):
    n = len(trajectories)
    batch = TrajectoryBatch.from_trajectories(trajectories)
    return SampledBatch(batch, np.zeros(n, np.int32), np.full(n, recent))


def test_staleness_is_counted_in_optimizer_steps():
    assert staleness(7, sampled(trajectory(7), trajectory(4))).tolist() == [0, 3]


def test_means_over_the_batch_learned_from():
    batch = sampled(trajectory(2, 1.0, 3), trajectory(4, 0.0, 5, finished=False))
    assert batch_metrics(5, batch) == {
        "batch/reward": 0.5,
        "batch/accuracy": 0.5,
        "batch/response_tokens": 4.0,
        "batch/truncated": 0.5,
        "batch/recent": 1.0,
        "staleness/mean": 2.0,
        "staleness/max": 3.0,
    }


def test_means_over_what_the_searchers_sampled_last():
    parts = [(trajectory(reward=1.0, length=2, gap=0.5),), (trajectory(length=4, finished=False),)]
    metrics = rollout_metrics([TrajectoryBatch.from_trajectories(part) for part in parts], ROLLOUT)
    assert metrics["rollout/reward"] == 0.5
    assert metrics["rollout/kl"] == pytest.approx(0.5)  # 2 tokens × 0.5 nats, over two responses
    assert metrics["rollout/response_tokens"] == 3.0
    assert metrics["rollout/truncated"] == 0.5
    assert rollout_metrics([], ROLLOUT) == {}


def exploring(temperature, top_p=(1.0, 1.0)):
    settings = {"fraction": 0.5, "temperature": temperature, "top_p": top_p}
    return RolloutConfig(**ROLLOUT.model_dump() | {"exploration": settings})


def kl(trajectories, rollout):
    """One number where there is one, None where the metric is left out; other metrics are always there."""
    metrics = rollout_metrics([TrajectoryBatch.from_trajectories(trajectories)], rollout)
    assert "rollout/reward" in metrics
    return metrics.get("rollout/kl")


def test_the_divergence_is_that_of_the_policy_and_not_of_exploration():
    mixed = [
        trajectory(length=3, gap=9.0, temperature=1.3),
        trajectory(length=2, gap=0.5),
        trajectory(length=0),
        trajectory(length=1, gap=7.0, temperature=0.71),
    ]
    assert kl(mixed, exploring((0.5, 1.5), (0.8, 1.0))) == pytest.approx(0.5)  # 2 × 0.5 nats, over two responses
    assert kl(mixed[:1], exploring((0.5, 1.5))) is None


def test_where_the_tail_of_the_policy_may_be_cut_off_there_is_no_divergence_to_tell():
    """At the run's own temperature nothing tells exploration by top-p alone from the policy."""
    batch = [trajectory(gap=0.5)]
    assert kl(batch, exploring((0.7, 0.7), (0.8, 1.0))) is None
    assert kl(batch, exploring((0.7, 0.7))) == pytest.approx(0.5)
    assert kl(batch, ROLLOUT.model_copy(update={"top_p": 0.9})) is None


def headers(generated, busy, idle=(0.0, 0.0)):
    result = np.zeros(2, HEADER)
    result["generated"], result["tokens"] = generated, np.multiply(generated, 10)
    result["busy_seconds"], result["idle_seconds"] = busy, idle
    return result


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(monitor, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_rates_are_over_the_last_ten_seconds_of_all_searchers_together(clock):
    rates = SearcherRates()
    rates.update(headers([0, 0], [0, 0]))
    assert rates.values["throughput/trajectories_per_second"] == 0
    clock.now += 5
    rates.update(headers([10, 40], [5, 2.5], idle=[1.0, 9.0]))
    assert rates.values["throughput/trajectories_per_second"] == 10
    assert rates.values["throughput/tokens_per_second"] == 100
    assert rates.values["searcher/busy"] == pytest.approx(0.75)
    assert rates.values["searcher/longest_idle_seconds"] == 9
    assert rates.values["searcher/generated"] == 50
    clock.now += 8
    rates.update(headers([10, 40], [5, 2.5]))
    clock.now += 8
    rates.update(headers([10, 40], [5, 2.5]))
    assert rates.values["throughput/trajectories_per_second"] == 0


class Recorder:
    """Writer and display in one."""

    def __init__(self):
        self.written, self.histograms, self.texts, self.shown, self.evaluations = {}, [], [], [], []

    def scalars(self, step, values):
        self.written[step] = values

    def evaluation(self, step, values):
        self.evaluations.append((step, values["accuracy"]))

    def histogram(self, step, name, values):
        self.histograms.append(step)

    def text(self, step, name, markdown):
        self.texts.append((step, name, markdown))

    def update(self, step, metrics):
        self.shown.append(step)


def make_monitor(arrival):
    stats = BufferStats(queries=1, in_ram=2, on_disk=3, ram_bytes=4, disk_bytes=5, evicted=6, duplicates=7, lost=8)

    class Buffer:
        stats = staticmethod(lambda: stats)
        __len__ = staticmethod(lambda: 5)

    latest = [TrajectoryBatch.from_trajectories([trajectory()])]
    intake = SimpleNamespace(last=arrival, latest_sync=latest, arrived=Arrived(np.zeros(2), 10, 4))
    recorder = Recorder()
    settings = LoggingConfig(samples_every=2, samples=3, histograms_every=3)
    render = "reward {0.reward}".format
    return Monitor(settings, ROLLOUT, recorder, recorder, Buffer(), intake, render), recorder


def test_every_step_is_written_and_shown_under_the_number_of_steps_done():
    subject, recorder = make_monitor(Arrival(1, [], headers([1, 2], [0, 0])))
    batch = sampled(trajectory(0, 1.0), trajectory(0, 0.0))
    save = {"checkpoint/copy_seconds": 0.25}
    for step in range(6):
        metrics = {"loss": 2.0, "beta": 0.1, "grad_norm": 3.0}
        subject.step(StepReport(step, batch, metrics, 3.0, 1.0, sync_seconds=0.5, checkpoint=save))
    assert list(recorder.written) == recorder.shown == [1, 2, 3, 4, 5, 6]
    assert recorder.histograms == [3, 6]
    assert recorder.texts == [
        (step, f"samples/{i}", f"reward {reward}") for step in (2, 4, 6) for i, reward in enumerate([1.0, 0.0])
    ]
    expected = {
        "objective/loss": 2.0,
        "schedule/beta": 0.1,
        "optimizer/grad_norm": 3.0,
        "trainer/busy": 0.75,
        "trainer/sync_seconds": 0.5,
        "buffer/size": 5,
        "buffer/duplicate_share": 0.4,
        "searcher/generated": 3.0,
        "checkpoint/copy_seconds": 0.25,
    }
    assert recorder.written[4].items() >= expected.items()


def test_an_evaluation_is_written_once_under_the_step_that_it_is_of():
    arrival = Arrival(1, [], headers([1, 2], [0, 0]))
    subject, recorder = make_monitor(arrival)
    for step in range(8):
        if step == 5:
            for name, values in {"": [4, 4], "_problems": [5, 5], "_correct": [3, 1]}.items():
                arrival.headers[f"evaluation{name}"] = values
        subject.step(StepReport(step, sampled(trajectory()), {"loss": 0.0, "beta": 0.1}, 1.0, 0.0, 0.0, {}))
    assert recorder.evaluations == [(4, 0.4)]


def test_every_number_on_the_display_is_one_that_is_written():
    subject, recorder = make_monitor(Arrival(1, [], headers([1, 2], [0, 0])))
    subject.step(StepReport(0, sampled(trajectory()), {"loss": 0.0, "beta": 0.1}, 1.0, 0.0, 0.0, {}))
    assert {name for name, _, _ in COLUMNS} <= recorder.written[1].keys()
