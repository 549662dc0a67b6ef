"""The two ends of the weight channel; the way between them is tested under MPI."""

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.distributed.manifest import Manifest
from tba_hpc.distributed.weight_channel import FlatWeights, StagedWeights

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def tensors_of(shapes):
    return [(f"w{i}", torch.randn(shape).to(dtype)) for i, (shape, dtype) in enumerate(shapes)]


def same(a, b):
    return [n for n, _ in a] == [n for n, _ in b] and all(
        x.dtype == y.dtype and torch.equal(x, y) for (_, x), (_, y) in zip(a, b, strict=True)
    )


shapes = st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(DTYPES)), min_size=1, max_size=8)


@given(shapes, st.integers(1, 64))
def test_buckets_of_any_size_carry_every_value_once(shapes, bucket_bytes):
    tensors = tensors_of(shapes)
    manifest = Manifest.of(tensors)
    source, target = (FlatWeights(manifest, CPU, bucket_bytes) for _ in range(2))
    source.copy_from(tensors)
    buckets = list(source.buckets())
    for sent, received in zip(buckets, target.buckets(), strict=True):
        received.copy_(sent)
    assert same(list(target.named()), tensors)
    assert sum(len(bucket) for bucket in buckets) == sum(tensor.numel() for _, tensor in tensors)
    assert all(bucket.nbytes <= max(bucket_bytes, bucket.element_size()) for bucket in buckets)


def test_a_snapshot_is_not_changed_by_training_that_goes_on():
    tensors = tensors_of([([2, 3], torch.float32)])
    flat = FlatWeights(Manifest.of(tensors), CPU, 64)
    flat.copy_from(tensors)
    before = tensors[0][1].clone()
    tensors[0][1].add_(1)
    assert torch.equal(dict(flat.named())["w0"], before)


def test_parameters_in_another_order_are_a_bug():
    tensors = tensors_of([([2], torch.float32), ([2], torch.float32)])
    flat = FlatWeights(Manifest.of(tensors), CPU, 64)
    with pytest.raises(AssertionError, match="parameter w1 where the manifest has w0"):
        flat.copy_from(tensors[::-1])


class Engine:
    def __init__(self):
        self.version, self.loaded = -1, []
        self.entered, self.leave = threading.Event(), threading.Event()
        self.leave.set()

    def load_weights(self, weights, version):
        self.entered.set()
        assert self.leave.wait(10)
        self.loaded.append({name: tensor.clone() for name, tensor in weights})
        self.version = version


class ArrivingWeights(FlatWeights):
    """Instead of a broadcast: waits for the gate, then every value is the number of broadcasts so far."""

    def __init__(self):
        super().__init__(Manifest.of([("w", torch.zeros(3))]), CPU, 64)
        self.count, self.gate, self.begun = 0, threading.Event(), threading.Event()
        self.gate.set()

    def broadcast(self, group, wait):
        self.begun.set()
        assert self.gate.wait(10)
        self.count += 1
        for _, tensor in self.named():
            tensor.fill_(self.count)


@pytest.fixture
def arriving():
    return ArrivingWeights()


@pytest.fixture
def staged(arriving):
    return StagedWeights(arriving)


class Reference:
    def __init__(self):
        self.version, self.values = 0, []

    def reset(self, weights, version):
        self.values += [float(tensor[0]) for _, tensor in weights]
        self.version = version


def test_a_new_reference_is_not_lost_when_newer_weights_come_before_a_commit(arriving):
    staged = StagedWeights(arriving, FlatWeights(arriving.manifest, CPU, 64))
    engine, reference = Engine(), Reference()
    staged.receive(None, None, 0)
    staged.commit(engine, reference)
    assert reference.values == []
    staged.receive(None, None, 2, is_reference=True)
    staged.receive(None, None, 4)
    assert staged.commit(engine, reference)
    assert (engine.version, reference.version, reference.values) == (4, 2, [2.0])
    staged.receive(None, None, 6)
    assert staged.commit(engine, reference)
    assert reference.values == [2.0], "once is enough"


def in_background(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def never():
    return False


def test_nothing_is_committed_before_something_has_arrived(staged):
    assert not staged.commit(Engine(), None)


def test_each_version_is_committed_once(staged):
    engine = Engine()
    for version in (0, 2, 4):
        staged.receive(None, None, version)
        assert staged.commit(engine, None)
        assert not staged.commit(engine, None)
    assert [float(loaded["w"][0]) for loaded in engine.loaded] == [1, 2, 3]
    assert engine.version == 4


def test_weights_that_nobody_committed_give_way_to_newer_ones(staged):
    engine = Engine()
    staged.receive(None, None, 0)
    staged.receive(None, None, 2)
    assert staged.commit(engine, None)
    assert (engine.version, len(engine.loaded)) == (2, 1)


def test_a_commit_does_not_wait_for_weights_on_their_way_and_never_sees_half_of_them(staged, arriving):
    engine = Engine()
    staged.receive(None, None, 0)
    arriving.gate.clear()
    arriving.begun.clear()
    receiving = in_background(staged.receive, None, None, 2)
    assert arriving.begun.wait(10)
    assert not staged.commit(engine, None)
    assert engine.loaded == []
    arriving.gate.set()
    receiving.join(10)
    assert staged.commit(engine, None)
    assert engine.loaded[0]["w"].tolist() == [2, 2, 2]


def test_weights_do_not_arrive_in_the_middle_of_a_commit(staged, arriving):
    engine = Engine()
    staged.receive(None, None, 0)
    arriving.begun.clear()
    engine.leave.clear()
    committing = in_background(staged.commit, engine, None)
    assert engine.entered.wait(10)
    receiving = in_background(staged.receive, None, None, 2)
    assert not arriving.begun.wait(0.1)
    engine.leave.set()
    committing.join(10)
    receiving.join(10)
    assert engine.loaded[0]["w"].tolist() == [1, 1, 1]
    assert (engine.version, arriving.count) == (0, 2)


def test_waiting_ends_when_newer_weights_lie_ready(staged):
    staged.receive(None, None, 0)
    staged.wait_beyond(-1, never, 10)
    waiting = in_background(staged.wait_beyond, 0, never, 10)
    staged.receive(None, None, 0)
    waiting.join(0.1)
    assert waiting.is_alive()
    staged.receive(None, None, 2)
    waiting.join(10)
    assert not waiting.is_alive()


def test_waiting_ends_when_the_run_does(staged):
    stopped = threading.Event()
    waiting = in_background(staged.wait_beyond, 0, stopped.is_set, 30)
    stopped.set()
    staged.wake()
    waiting.join(10)
    assert not waiting.is_alive()


def test_waiting_has_a_bound_and_names_who_was_waited_for(staged):
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="trainer 0 sent no weights newer than version 4 within 0 s"):
        staged.wait_beyond(4, never, 0.05)
    assert time.monotonic() - started >= 0.05


class TakenAway(StagedWeights):
    """The communication thread makes way for newer weights right after the main thread has looked."""

    looks = 0

    @property
    def _version(self):
        self.looks += 1
        return 5 if self.looks == 1 else None

    @_version.setter
    def _version(self, version):
        pass


def test_weights_that_go_away_while_one_looks_at_them_do_no_harm(arriving):
    TakenAway(arriving).wait_beyond(4, never, 1)
