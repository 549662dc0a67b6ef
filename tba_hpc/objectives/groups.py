"""Statistics of the trajectories of one query. All take `values [N]` and `group_ids [N]` and give `[N]`."""

from __future__ import annotations

import torch
from torch import Tensor


def group_size(group_ids: Tensor) -> Tensor:
    """How many rows have the group id of each, as float32."""
    _, group, counts = torch.unique(group_ids, return_inverse=True, return_counts=True)
    size: Tensor = counts[group].to(torch.float32)
    return size


def group_mean(values: Tensor, group_ids: Tensor) -> Tensor:
    """The mean over the rows of the group."""
    _, group, counts = torch.unique(group_ids, return_inverse=True, return_counts=True)
    means: Tensor = torch.zeros(len(counts), device=values.device).index_add(0, group, values) / counts
    return means[group]


def centred(values: Tensor, group_ids: Tensor) -> Tensor:
    """The value less the mean of the group."""
    return values - group_mean(values, group_ids)


def leave_one_out(values: Tensor, group_ids: Tensor) -> Tensor:
    """The value less the mean of the *other* rows of the group, K/(K−1) times `centred`; 0 for a row alone."""
    size = group_size(group_ids)
    return centred(values, group_ids) * size / (size - 1).clamp(min=1)


def group_deviation(values: Tensor, group_ids: Tensor) -> Tensor:
    """The standard deviation of the group's values with K − 1 in the denominator; 0 for a row alone."""
    size = group_size(group_ids)
    variance = group_mean(centred(values, group_ids).square(), group_ids) * size / (size - 1).clamp(min=1)
    return variance.sqrt()


class Table:
    """Rows laid out by group: one line a group, one place a row."""

    def __init__(self, group_ids: Tensor) -> None:
        """`group_ids [N]` of G groups of at most K rows, N ≥ 1."""
        _, self._group, self.sizes = torch.unique(group_ids, return_inverse=True, return_counts=True)
        order = torch.argsort(self._group, stable=True)
        starts = self.sizes.cumsum(0) - self.sizes
        self._place = torch.empty_like(order)
        self._place[order] = torch.arange(len(order), device=order.device) - starts[self._group[order]]

    def lay_out(self, values: Tensor, fill: float) -> Tensor:
        """`values [N]` as `[G, K]`, with `fill` where a group has less than K rows."""
        table = values.new_full((len(self.sizes), int(self.sizes.max())), fill)
        table[self._group, self._place] = values
        return table

    def take_up(self, table: Tensor) -> Tensor:
        """The rows `[N]` of `table [G, K]`."""
        return table[self._group, self._place]
