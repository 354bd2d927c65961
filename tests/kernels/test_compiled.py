"""The kernels compile for a GPU, also on a machine without one: Triton's interpreter accepts more than its compiler."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")

SCRIPT = """
import json, re, sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from granet.kernels import global_search as everywhere, keyed_noise as noise, masking, selection as layers
from granet.kernels.digits import KEYS, KEYS_AND_PLACES
from granet.kernels.layer_table import BLOCK, PIECE, Cut
from granet.methods.deep_r import langevin_triton as langevin
from granet.training import narrow_conv_triton as narrow

def widths(kernel, aligned, types, **constants):
    "How many bytes the loads and stores of a block move at once: those with a predicate."
    constants |= {"CUT": Cut(PIECE, BLOCK, aligned)} if "CUT" in kernel.arg_names else {}
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "*i64") for name in names}
    hints = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()}, hints)
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    moves = [line.split()[1] for line in code.splitlines() if line.strip().startswith("@") and ".global." in line]
    moves = [move for move in moves if move.startswith(("ld", "st"))]
    parts = [re.search(r"(?:[.]v([0-9]))?[.]b([0-9]+)$", move).groups() for move in moves]
    return sorted({int(many or 1) * int(bits) // 8 for many, bits in parts})

found = {}
numbers = {"layers": "i32", "copies": "*fp32", "finite": "*u8"}
for aligned in (1, 16):
    for steps in (KEYS, KEYS_AND_PLACES):
        for step in [step for step in steps[:-1] if step.round in (0, 3, 4, 5)]:  # of each kind one
            place = {"STEP": step, "AMONG": 1, "DTYPE": tl.bfloat16}
            name = f"layers {step.rounds} {step.round} {aligned}"
            found[name] = widths(layers._search_layers, aligned, numbers, **place)
        place = {"STEP": steps[-1], "AMONG": 0, "DTYPE": tl.float32}
        found[f"mark {len(steps)} {aligned}"] = widths(layers._mark, aligned, numbers, **place)
    for alone in (True, False):
        for i in (0, 3):
            place = {"STEP": KEYS[i], "ALONE": alone, "AMONG": 1, "DTYPE": tl.bfloat16}
            found[f"globally {alone} {i} {aligned}"] = widths(everywhere._search_globally, aligned, numbers, **place)
    for kernel in (masking._zero_inactive, masking._see_finite, masking._take_dense):
        constants = {"INTEGER": tl.int32} | ({"EXPONENT": 0x7F800000} if "EXPONENT" in kernel.arg_names else {})
        found[f"{kernel.__name__} {aligned}"] = widths(kernel, aligned, numbers, **constants)
for step in (KEYS[0], KEYS[3]):
    found[f"sums {step.round}"] = widths(everywhere._add_up_sums, 1, numbers, STEP=step)
found["share"] = widths(everywhere._share, 1, numbers, STEP=KEYS[-1], LAYERS=64)

numbers = {name: "*bf16" for name in ("images", "weight", "gradient", "out")} | {"parts": "*fp32", "pixels": "i32"}
for inputs, stride in (16, 2), (64, 1):
    sizes = {"CONV": narrow.Conv(8, 8, 8 // stride, 8 // stride, stride, inputs, 32), "BLOCK": 64}
    for kernel in (narrow._forward, narrow._input_gradient):
        widths(kernel, 1, numbers, **sizes)
    widths(narrow._weight_gradient, 1, numbers, EACH=256, **sizes)
sizes = {"CONV": narrow.Conv(8, 8, 8, 8, 1, 3, 64), "BLOCK": 64, "WIDTH": 32}
widths(narrow._first_forward, 1, numbers, **sizes)
widths(narrow._first_weight_gradient, 1, numbers, EACH=256, **sizes)

bytes_of = {name: "*u8" for name in ("masks", "signs", "accept", "crossed")}
numbers = {name: "i32" for name in ("first", "second", "third", "fourth", "numel")}
numbers |= dict.fromkeys(("start", "run", "gap"), "i64")
numbers |= bytes_of | {"out": "*fp32", "weights": "*fp32"} | dict.fromkeys(("rate", "l1", "noise"), "fp32")
for whole in (True, False):
    widths(noise._uniform_noise, 1, numbers, WHOLE=whole, BLOCK=noise.BLOCK)
widths(langevin._walk, 1, numbers, BLOCK=noise.BLOCK)
json.dump(found, sys.stdout)
"""


def test_every_kernel_compiles_and_moves_sixteen_bytes_at_once_where_it_may() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    for name, widths in found.items():
        aligned = name.endswith(" 16")
        assert (max(widths, default=0) == 16) is aligned, (name, widths)
