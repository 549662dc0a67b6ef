"""Weights from trainer 0 to every searcher, over a torch.distributed group of their own.

All tensors of a dtype lie end to end in one preallocated flat tensor, which travels in buckets: a publish is one
device-side copy into it and a handful of large broadcasts, whatever the number of parameters. Searchers receive into a
flat tensor of the same layout in the background (staging) and copy from it into their engine between two generation
batches (commit), so neither generation nor training waits for the transfer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from tba_hpc.distributed.manifest import Manifest
from tba_hpc.distributed.world import LEADER
from tba_hpc.reference import ReferencePolicy
from tba_hpc.rollout.engine import RolloutEngine

Wait = Callable[[Callable[[], bool], str], None]
"""Waits until the first argument returns true, or raises `TimeoutError` that mentions the second."""


class FlatWeights:
    """Room for one set of weights, laid out end to end by dtype."""

    def __init__(self, manifest: Manifest, device: torch.device, bucket_bytes: int) -> None:
        self.manifest = manifest
        sizes: dict[torch.dtype, int] = {}
        self._places: list[tuple[torch.dtype, int]] = []
        for spec in manifest.tensors:
            self._places.append((spec.torch_dtype, sizes.get(spec.torch_dtype, 0)))
            sizes[spec.torch_dtype] = sizes.get(spec.torch_dtype, 0) + spec.numel
        self._flat = {dtype: torch.empty(size, dtype=dtype, device=device) for dtype, size in sizes.items()}
        self._bucket_bytes = bucket_bytes

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Views of the tensors by name, in the manifest's order."""
        for spec, (dtype, start) in zip(self.manifest.tensors, self._places, strict=True):
            yield spec.name, self._flat[dtype][start : start + spec.numel].view(spec.shape)

    def copy_from(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Snapshot of a model's parameters `named`, which must be those of the manifest, in its order."""
        with torch.no_grad():
            for (name, room), (source, tensor) in zip(self.named(), named, strict=True):
                assert name == source, f"parameter {source} where the manifest has {name}"
                room.copy_(tensor)

    def buckets(self) -> Iterator[torch.Tensor]:
        for flat in self._flat.values():
            yield from torch.split(flat, max(self._bucket_bytes // flat.element_size(), 1))

    def broadcast(self, group: ProcessGroup, wait: Wait) -> None:
        """Trainer 0's values into everybody's. All buckets are in flight at once; raises what `wait` raises."""
        options = dist.BroadcastOptions()
        options.rootRank = LEADER
        works = [group.broadcast([bucket], options) for bucket in self.buckets()]
        for number, work in enumerate(works, start=1):
            wait(work.is_completed, f"weights, bucket {number} of {len(works)}")
            work.wait()  # raises what went wrong in the transfer; on a GPU it orders the streams


class StagedWeights:
    """A searcher's latest received weights. Received by the communication thread, committed by the main thread."""

    def __init__(self, flat: FlatWeights, reference: FlatWeights | None = None) -> None:
        """`reference`: room for those of a new reference policy, where there can be one. Newer weights of the policy
        may come before they are committed."""
        self._flat = flat
        self._reference = reference
        self._reference_version: int | None = None
        self._in_use = threading.Lock()
        self._arrived = threading.Condition()
        self._version: int | None = None

    def receive(self, group: ProcessGroup, wait: Wait, version: int, is_reference: bool = False) -> None:
        """Waits for a commit in progress, then for the broadcast. `is_reference`: these weights are to be those of the
        reference policy, too."""
        with self._in_use:
            self._version = None
            self._flat.broadcast(group, wait)
            if is_reference:
                assert self._reference is not None, "a reference policy that never moves was moved"
                self._reference.copy_from(self._flat.named())
                self._reference_version = version
            with self._arrived:
                self._version = version
                self._arrived.notify_all()

    def commit(self, engine: RolloutEngine, reference: ReferencePolicy) -> bool:
        """Gives newer weights to the engine if some lie ready, and to the reference policy those it is to have. Does
        not wait for any that are on their way. Returns whether the engine has new ones."""
        if not self._in_use.acquire(blocking=False):
            return False
        try:
            if self._reference is not None and self._reference_version is not None:
                reference.reset(self._reference.named(), self._reference_version)
                self._reference_version = None
            if self._version is None or self._version == engine.version:
                return False
            engine.load_weights(self._flat.named(), self._version)
            return True
        finally:
            self._in_use.release()

    def wait_beyond(self, version: int, stopped: Callable[[], bool], seconds: float) -> None:
        """Waits until weights newer than `version` lie ready or the run has stopped. Raises `TimeoutError`."""

        def ready() -> bool:
            arrived = self._version  # read once: the communication thread may take it away any moment
            return stopped() or (arrived is not None and arrived > version)

        with self._arrived:
            if not self._arrived.wait_for(ready, seconds):
                raise TimeoutError(f"trainer 0 sent no weights newer than version {version} within {seconds:.0f} s")

    def wake(self) -> None:
        """Lets a waiting main thread look at whether the run has stopped."""
        with self._arrived:
            self._arrived.notify_all()
