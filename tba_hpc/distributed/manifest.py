"""What a set of weights consists of: the contract that both ends of the weight channel compare before any byte
moves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TensorSpec:
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def numel(self) -> int:
        return torch.Size(self.shape).numel()

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)} {self.dtype}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The tensors of a model in the order in which they travel. Tied tensors stand in it once."""

    tensors: tuple[TensorSpec, ...]

    @classmethod
    def of(cls, named: Iterable[tuple[str, torch.Tensor]]) -> Manifest:
        return cls(tuple(TensorSpec(name, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in named))

    def to_json(self) -> str:
        return json.dumps([[t.name, t.shape, t.dtype] for t in self.tensors])

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        return cls(tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in json.loads(text)))

    @property
    def fingerprint(self) -> int:
        """63 bits that differ when anything in the manifest does, its order included."""
        return int.from_bytes(hashlib.sha256(self.to_json().encode()).digest()[:8], "little") >> 1

    def check(self, mine: Manifest, whose: str) -> None:
        """Raises `ValueError` listing where `mine`, the tensors of `whose` model, differ from this manifest."""
        if mine == self:
            return
        theirs, own = {t.name: t for t in self.tensors}, {t.name: t for t in mine.tensors}
        differences = [f"{name} is missing" for name in theirs if name not in own]
        differences += [f"{name} is not in the trainer's model" for name in own if name not in theirs]
        differences += [
            f"{own[name]} where the trainer has {spec}"
            for name, spec in theirs.items()
            if name in own and own[name] != spec
        ]
        if not differences:
            at = next(i for i, (a, b) in enumerate(zip(self.tensors, mine.tensors, strict=True)) if a != b)
            differences = [f"order: {mine.tensors[at].name} where the trainer has {self.tensors[at].name}"]
        shown = "; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise ValueError(f"weights of {whose} do not match the trainer's: {shown}")
