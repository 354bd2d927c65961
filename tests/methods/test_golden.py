"""The same masks as the authors' own program, update by update."""

import numpy as np
import pytest

import granet
from golden import EVERY, PRUNE_END, SETTINGS, TOTAL, first_masks, golden, network, optimizer, packed, updates
from granet.tensors.packing import pack_bits

METHODS = {
    "granet-dense": granet.GraNet(sparsity=0.9, every=EVERY, prune_end=PRUNE_END),
    "granet-sparse": granet.GraNet(sparsity=0.9, initial_sparsity=0.5, every=EVERY, prune_end=PRUNE_END),
    "gmp": granet.GMP(sparsity=0.9, every=EVERY, prune_end=PRUNE_END),
    "rigl-itop": granet.RigLITOP(sparsity=0.8, every=EVERY),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_masks_are_those_of_the_authors_program(setting: str) -> None:
    model = network()
    trained = optimizer(model)
    sparsifier = granet.sparsify(model, trained, METHODS[setting], total_steps=TOTAL)
    begun = network().state_dict()
    masks = first_masks(model, SETTINGS[setting][1])
    sparsifier.load_state_dict(sparsifier.state_dict() | {"masks": {name: pack_bits(masks[name]) for name in masks}})
    model.load_state_dict({name: begun[name] * masks[name] for name in begun})
    found = packed(list(updates(model, trained.step, lambda: sparsifier.masks)))
    theirs = golden(setting)
    assert found.keys() == theirs.keys()
    for name, bits in theirs.items():
        assert np.array_equal(found[name], bits), (name, np.unpackbits(found[name] ^ bits, axis=1).sum(1))
