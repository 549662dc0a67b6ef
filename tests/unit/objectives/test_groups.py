"""Statistics of groups that are scattered over a batch."""

from __future__ import annotations

import torch

from tba_hpc.objectives.groups import Table, centred, group_deviation, group_mean, group_size, leave_one_out

VALUES = torch.tensor([1.0, 5.0, 4.0, 5.0, 7.0, 4.0])
GROUPS = torch.tensor([9, 2, 9, 2, 5, 9])
"""Groups of 3, 2 and 1."""


def test_statistics_of_each_group() -> None:
    assert group_size(GROUPS).tolist() == [3, 2, 3, 2, 1, 3]
    assert group_mean(VALUES, GROUPS).tolist() == [3, 5, 3, 5, 7, 3]
    assert centred(VALUES, GROUPS).tolist() == [-2, 0, 1, 0, 0, 1]
    assert leave_one_out(VALUES, GROUPS).tolist() == [-3, 0, 1.5, 0, 0, 1.5]
    torch.testing.assert_close(group_deviation(VALUES, GROUPS), torch.tensor([3, 0, 3, 0, 0, 3]).sqrt())


def test_rows_are_laid_out_by_group_and_taken_up_again() -> None:
    table = Table(GROUPS)
    laid_out = table.lay_out(VALUES, -1.0)
    assert laid_out.tolist() == [[5, 5, -1], [7, -1, -1], [1, 4, 4]]
    assert table.sizes.tolist() == [2, 1, 3]
    assert table.take_up(laid_out).tolist() == VALUES.tolist()


def test_no_rows_have_no_statistics() -> None:
    nothing = torch.zeros(0)
    for statistic in (group_mean, centred, leave_one_out, group_deviation):
        assert len(statistic(nothing, nothing.long())) == 0
