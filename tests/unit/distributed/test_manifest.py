from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.distributed.manifest import Manifest, TensorSpec

TRAINER = Manifest(
    (
        TensorSpec("embed", (10, 4), "float32"),
        TensorSpec("norm", (4,), "bfloat16"),
        TensorSpec("gate", (), "float32"),
    )
)


def without(name):
    return Manifest(tuple(t for t in TRAINER.tensors if t.name != name))


def changed(name, /, **fields):
    return Manifest(tuple(replace(t, **fields) if t.name == name else t for t in TRAINER.tensors))


@pytest.mark.parametrize(
    ("mine", "difference"),
    [
        (without("norm"), "norm is missing"),
        (Manifest((*TRAINER.tensors, TensorSpec("bias", (4,), "float32"))), "bias is not in the trainer's model"),
        (changed("embed", shape=(11, 4)), "embed [11, 4] float32 where the trainer has embed [10, 4] float32"),
        (changed("norm", shape=(4, 1)), "norm [4, 1] bfloat16 where the trainer has norm [4] bfloat16"),
        (changed("gate", dtype="float16"), "gate [] float16 where the trainer has gate [] float32"),
        (Manifest(TRAINER.tensors[::-1]), "order: gate where the trainer has embed"),
        (changed("gate", name="door"), "gate is missing; door is not in the trainer's model"),
    ],
)
def test_a_difference_is_refused_naming_the_tensor(mine, difference):
    with pytest.raises(ValueError, match="do not match") as caught:
        TRAINER.check(mine, "searcher 1 (rank 2)")
    assert str(caught.value) == f"weights of searcher 1 (rank 2) do not match the trainer's: {difference}"
    assert mine.fingerprint != TRAINER.fingerprint


def test_the_same_is_accepted():
    TRAINER.check(Manifest(TRAINER.tensors), "searcher 0")


def test_many_differences_are_cut_short():
    with pytest.raises(ValueError, match=r"w0 is missing; .*w4 is missing; and 95 more$"):
        Manifest(tuple(TensorSpec(f"w{i}", (1,), "float32") for i in range(100))).check(Manifest(()), "searcher 0")


def test_a_manifest_of_a_model_holds_tied_weights_once():
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False).to(torch.bfloat16))
    assert [str(t) for t in Manifest.of(model.named_parameters()).tensors] == [
        "0.weight [5, 3] float32",
        "1.weight [5, 3] bfloat16",
    ]
    model[1].weight = model[0].weight
    assert [t.name for t in Manifest.of(model.named_parameters()).tensors] == ["0.weight"]


specs = st.builds(
    TensorSpec,
    st.text(min_size=1),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.sampled_from(["float32", "bfloat16", "float16"]),
)


@given(st.lists(specs, max_size=5).map(tuple))
def test_a_manifest_survives_the_journey_as_text(tensors):
    manifest = Manifest(tensors)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert 0 <= manifest.fingerprint < 2**63
