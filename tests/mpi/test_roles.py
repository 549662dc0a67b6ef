"""Who becomes what in worlds of several sizes."""

import pytest


@pytest.fixture(scope="module")
def values(run_mpi, tiny_run):
    job = run_mpi("roles", 4, tiny_run)
    assert job.code == 0, job.output
    return job.values


@pytest.mark.parametrize(("size", "trainers"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3)])
def test_the_first_ranks_train_and_the_others_search(values, size, trainers):
    searchers = size - trainers
    counts = f"{trainers}+{searchers}"
    expected = [
        f"trainer {i} (rank {i}), {counts}, exchange {'-' if i else 0}, trainers {i}/{trainers}, 127.0.0.1"
        for i in range(trainers)
    ] + [
        f"searcher {i} (rank {trainers + i}), {counts}, exchange {1 + i}, trainers -, 127.0.0.1"
        for i in range(searchers)
    ]
    assert values["worlds"][f"{size} {trainers}"] == expected + [""] * (4 - size)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_world_without_searchers_is_refused_on_every_rank(values, size):
    message = f"error: distributed.trainers = {size} leaves no searcher among {size} ranks"
    assert values["worlds"][f"{size} {size}"] == [message] * size + [""] * (4 - size)


def test_ranks_share_the_cores_they_may_use_fairly(values):
    cores = values["cores"]
    assert values["threads"] == [cores, max(cores // 4, 1)]
    assert values["bound"] == ["1"] * 4
