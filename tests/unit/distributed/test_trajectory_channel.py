import threading

import numpy as np
import pytest

from tba_hpc.codec import CodecError
from tba_hpc.distributed.round import HEADER, Collected
from tba_hpc.distributed.trajectory_channel import Outbox, from_payloads, to_payload
from tba_hpc.trajectory import Trajectory, TrajectoryBatch


def batch_of(*serials):
    tokens, logprobs = np.zeros(4, np.int32), np.zeros(4, np.float32)
    return TrajectoryBatch.from_trajectories(
        [Trajectory(s, tokens, tokens, logprobs, logprobs, 0.0, True, True, 1.0, 0, 0, 0) for s in serials]
    )


def ids(batch):
    return batch.rows["prompt_id"].tolist()


def test_the_outbox_gives_out_everything_once_and_in_order():
    outbox = Outbox(10**6)
    assert ids(outbox.take()) == []
    for serials in ([1, 2], [], [3]):
        outbox.offer(batch_of(*serials))
    assert ids(outbox.take()) == [1, 2, 3]
    assert ids(outbox.take()) == []


def test_a_full_outbox_makes_the_searcher_wait_until_a_round_has_come():
    outbox = Outbox(limit_bytes=batch_of(1).nbytes)
    outbox.offer(batch_of(1))
    assert outbox.wait_for_room(1) < 0.05  # not above the limit yet
    outbox.offer(batch_of(2))
    waited = []
    searcher = threading.Thread(target=lambda: waited.append(outbox.wait_for_room(30)), daemon=True)
    searcher.start()
    searcher.join(0.1)
    assert searcher.is_alive()
    assert ids(outbox.take()) == [1, 2]
    outbox.announce_room()
    searcher.join(10)
    assert waited[0] > 0.05


def test_the_end_of_the_run_frees_a_waiting_searcher():
    outbox = Outbox(0)
    outbox.offer(batch_of(1))
    searcher = threading.Thread(target=outbox.wait_for_room, args=(30,), daemon=True)
    searcher.start()
    outbox.close()
    searcher.join(10)
    assert not searcher.is_alive()


def test_waiting_for_a_round_has_a_bound():
    outbox = Outbox(0)
    outbox.offer(batch_of(1))
    with pytest.raises(TimeoutError, match=r"no round of trainer 0 took the \d+ pending bytes within 0 s"):
        outbox.wait_for_room(0.05)


def collected(*payloads):
    return Collected(np.zeros(len(payloads), HEADER), list(payloads))


def test_payloads_become_batches_by_searcher():
    batches = from_payloads(collected(to_payload(batch_of(1)), to_payload(batch_of()), to_payload(batch_of(2, 3))))
    assert [ids(batch) for batch in batches] == [[1], [], [2, 3]]
    assert len(to_payload(batch_of())) == 0


def test_damaged_bytes_are_laid_at_their_senders_door():
    damaged = to_payload(batch_of(1))
    damaged[-1] ^= 1
    with pytest.raises(CodecError, match="payload of searcher 1: checksum"):
        from_payloads(collected(to_payload(batch_of(1)), damaged))
