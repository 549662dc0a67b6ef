"""The exchange of trainer 0 and searchers with both threads at work, on a model of mixed types with tied embeddings:
`exchange.py CONFIG`.

1. Every searcher checks that each version of the weights arrives bit for bit, and answers with a batch.
2. Searchers keep their main thread busy until the run stops, while trainer 0 runs rounds and publishes.
3. In a second exchange, the engine of searcher 1 hangs in a commit; the job ends with trainer 0's error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import torch
from mpi4py import MPI
from reporting import report

from tba_hpc.config import RunConfig, load_run_config
from tba_hpc.distributed.manifest import Manifest
from tba_hpc.distributed.process_groups import make_group, open_store
from tba_hpc.distributed.searcher_exchange import SearcherExchange
from tba_hpc.distributed.trainer_exchange import TrainerExchange
from tba_hpc.distributed.weight_channel import FlatWeights, StagedWeights
from tba_hpc.distributed.world import World, build_world
from tba_hpc.trajectory import ROW_DTYPE, TrajectoryBatch

SECONDS = 60.0
VERSIONS = 5
STALL_SECONDS = 3.0
BATCH = 3
GPU = torch.device("cuda", 0)
"""What the exchange takes the ranks' device for; weights and transfers are the CPU's."""
THREADS: list[str] = []
"""Those that made the GPU their own."""


class Model(torch.nn.Module):
    """Weights that follow from the version alone."""

    def __init__(self, version: int, width: int = 12) -> None:
        super().__init__()
        torch.manual_seed(version)
        self.embedding = torch.nn.Embedding(50, width)
        self.inner = torch.nn.Linear(width, width).to(torch.bfloat16)
        self.norm = torch.nn.LayerNorm(width)
        self.gate = torch.nn.Parameter(torch.randn(()).to(torch.bfloat16))
        self.head = torch.nn.Linear(width, 50, bias=False)
        self.head.weight = self.embedding.weight

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, parameter.detach()) for name, parameter in self.named_parameters())


class Engine:
    """A rollout engine that only holds weights."""

    def __init__(self, model: Model, hang_at: int = -1) -> None:
        self.model, self.version, self._hang_at = model, -1, hang_at

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        if version == self._hang_at:
            time.sleep(1000)
        parameters = dict(self.model.named())
        for name, values in weights:
            parameters[name].copy_(values)
        self.version = version


def same_bits(a: Model, b: Model) -> bool:
    return all(
        x.dtype == y.dtype and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for (_, x), (_, y) in zip(flat(a), flat(b), strict=True)
    )


def flat(model: Model) -> list[tuple[str, torch.Tensor]]:
    return [(name, parameter.reshape(-1)) for name, parameter in model.named()]


def batch_of(version: int, searcher: int) -> TrajectoryBatch:
    rows = np.zeros(BATCH, ROW_DTYPE)
    rows["policy_version"], rows["searcher"] = version, searcher
    return replace(TrajectoryBatch.empty(), rows=rows)


def connect(world: World, config: RunConfig, width: int, seconds: float) -> TrainerExchange | SearcherExchange:
    settings = config.distributed.model_copy(update={"timeout_seconds": seconds})
    comm = world.exchange
    assert comm is not None
    store = open_store(comm, world.host, SECONDS)
    group = Mock(wraps=make_group(store, "weights", comm, world.host, world.device, 2 * SECONDS))
    weights = FlatWeights(Manifest.of(Model(0, width).named()), world.device, settings.bucket_bytes)
    world = replace(world, device=GPU)
    if world.is_leader:
        return TrainerExchange(world, weights, group, settings, syncs=0)
    return SearcherExchange(world, StagedWeights(weights), weights.manifest.fingerprint, group, settings, lambda: False)


def set_device(device: torch.device) -> None:
    """In place of CUDA's: notes which thread would have this rank's GPU."""
    assert device == GPU
    THREADS.append(threading.current_thread().name)


def lead(exchange: TrainerExchange) -> dict[str, object]:
    exchange.start()
    n_searchers, answers, syncs = MPI.COMM_WORLD.size - 1, [], []
    for version in range(VERSIONS):
        exchange.publish(version, Model(version).named())
        exchange.wait_until_published()
        rows = np.empty(0, ROW_DTYPE)
        while len(rows) < n_searchers * BATCH:
            for arrival in exchange.wait_for_arrivals(SECONDS):
                rows = np.concatenate([rows, *(batch.rows for batch in arrival.batches)])
                syncs += [arrival.sync for batch in arrival.batches if len(batch)]
        answers.append(sorted(zip(rows["policy_version"].tolist(), rows["searcher"].tolist(), strict=True)))
    rounds, generated = 0, []
    while rounds < 20:  # all the while the searchers' main threads do not come to the exchange
        for arrival in exchange.wait_for_arrivals(SECONDS):
            rounds += 1
            generated.append(int(arrival.headers["generated"].sum()))
    exchange.publish(VERSIONS, Model(VERSIONS).named())
    exchange.wait_until_published()
    closed_before = exchange._group.shutdown.call_count
    exchange.stop()
    closed = [closed_before, exchange._group.shutdown.call_count]
    return {"answers": answers, "syncs": syncs, "generated": generated, "closed": closed, "threads": THREADS}


def search(exchange: SearcherExchange, index: int) -> None:
    engine = Engine(Model(1000))
    exchange.start()
    for version in range(VERSIONS):
        exchange.staged.wait_beyond(engine.version, exchange.stopped, SECONDS)
        while not exchange.staged.commit(engine, None):
            time.sleep(1e-3)
        assert engine.version == version
        assert same_bits(engine.model, Model(version)), f"version {version} arrived changed"
        assert not exchange.staged.commit(engine, None), "nothing newer was there to commit"
        exchange.stats.record(BATCH, 0, 0.0)
        exchange.outbox.offer(batch_of(version, index))
    while not exchange.stopped():
        sum(range(10_000))
    exchange.join()
    assert exchange._group.shutdown.call_count == 1
    assert THREADS == ["exchange"]
    assert exchange.staged.commit(engine, None)
    assert same_bits(engine.model, Model(VERSIONS)), "weights that came while the main thread was busy"


def stall(exchange: TrainerExchange | SearcherExchange, index: int, width: int) -> None:
    """Ends the job. The weights are large, so that no socket buffer swallows them."""
    exchange.start()
    if isinstance(exchange, TrainerExchange):
        for version in range(3):
            exchange.publish(version, Model(version, width).named())
            exchange.wait_until_published()
        return
    engine = Engine(Model(1000, width), hang_at=1 if index == 1 else -1)
    while True:
        exchange.staged.commit(engine, None)
        time.sleep(1e-3)


def main() -> None:
    comm = MPI.COMM_WORLD
    config = load_run_config(Path(sys.argv[1]), [])
    world = build_world(comm, config)
    exchange = connect(world, config, 12, SECONDS)
    if isinstance(exchange, TrainerExchange):
        n_buckets = len(list(exchange._flat.buckets()))
        report(comm, buckets=n_buckets, **lead(exchange))
    else:
        search(exchange, world.index)
    width = 2048
    stall(connect(world, config, width, STALL_SECONDS), world.index, width)


if __name__ == "__main__":
    with patch("torch.cuda.set_device", set_device):
        main()
