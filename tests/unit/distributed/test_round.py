from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.distributed.round import effective_chunk

COUNTABLE = 2**31 - 1


@given(st.integers(1, 2**40), st.integers(1, 5000))
def test_a_gather_of_full_chunks_stays_countable(chunk_bytes, n_searchers):
    chunk = effective_chunk(chunk_bytes, n_searchers)
    assert 0 < chunk * n_searchers <= COUNTABLE
    assert chunk % 8 == 0
    assert chunk <= max(chunk_bytes, 8)


@given(st.integers(8, COUNTABLE // 64))
def test_the_chunk_asked_for_is_used_where_it_can_be(chunk_bytes):
    assert chunk_bytes - effective_chunk(chunk_bytes, 64) < 8
