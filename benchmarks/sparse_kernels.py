"""How fast the native kernels are: layers and whole networks with random masks, against OpenVINO and PyTorch.

    python benchmarks/sparse_kernels.py                    the layers
    python benchmarks/sparse_kernels.py vgg19 resnet50     whole networks, and where their time goes

One thread, in fp32; with --bits 16 granet's kernels compute in fp16, where the processor does. Times are the least
processor time of many runs, so other processes disturb them little; all engines take turns. OpenVINO is left out where
it is not installed. GFLOP/s count two operations for every weight that is not zero at every place of the output.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from granet.native import NativePlan, isas


@dataclass
class Network:
    """The same network as a plan and as a module of PyTorch, with one set of random weights."""

    shape: tuple[int, int, int]
    sparsity: float
    batch: int = 1
    isa: str | None = None
    bits: int = 32
    plan: NativePlan = field(init=False)
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.plan = NativePlan(self.batch, 1, self.isa, bits=self.bits)
        self.random = np.random.default_rng(0)
        self.steps: list[Callable[[dict[int, torch.Tensor]], None]] = []
        self.weights = nn.ParameterList()
        self.input = self.plan.input(*self.shape)

    def conv(
        self,
        x: int,
        outs: int,
        kernel: int,
        stride: int = 1,
        *,
        relu: bool = True,
        residual: int | None = None,
        gain: float = 1.0,
        dense: bool = False,
    ) -> int:
        ins = self.plan.shape(x)[0]
        density = 1.0 if dense else 1 - self.sparsity
        scale = np.sqrt(2 * gain / (ins * kernel**2 * density))
        weight = (self.random.standard_normal((outs, ins, kernel, kernel)) * scale).astype(np.float32)
        if not dense:
            weight[self.random.random(weight.shape) < self.sparsity] = 0
        bias = (self.random.standard_normal(outs) * 0.1).astype(np.float32)
        at = np.flatnonzero(weight).astype(np.uint32)
        pair, padding = (stride, stride), (kernel // 2, kernel // 2)
        y = self.plan.conv(
            x, outs, (kernel, kernel), at, weight.ravel()[at], bias,
            stride=pair, padding=padding, residual=residual, relu=relu,
        )  # fmt: skip
        w, b = nn.Parameter(torch.from_numpy(weight)), nn.Parameter(torch.from_numpy(bias))
        self.weights.extend((w, b))

        def step(values: dict[int, torch.Tensor]) -> None:
            out = F.conv2d(values[x], w, b, pair, padding)
            out = out if residual is None else out + values[residual]
            values[y] = F.relu(out) if relu else out

        self.steps.append(step)
        return y

    def max_pool(self, x: int, kernel: int, stride: int, padding: int = 0) -> int:
        y = self.plan.max_pool(x, (kernel, kernel), (stride, stride), (padding, padding))
        self.steps.append(lambda values: values.update({y: F.max_pool2d(values[x], kernel, stride, padding)}))
        return y

    def mean(self, x: int) -> int:
        y = self.plan.global_pool(x)
        self.steps.append(lambda values: values.update({y: values[x].mean((2, 3), keepdim=True)}))
        return y

    def finish(self, y: int) -> Network:
        self.output = y
        self.plan.output(y)
        self.plan.finish()
        return self

    def module(self) -> nn.Module:
        network = self

        class Module(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weights = network.weights

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                values = {network.input: x}
                for step in network.steps:
                    step(values)
                return values[network.output]

        return Module().eval()


def vgg19(sparsity: float, **options: Any) -> Network:
    """Of CIFAR, without batch norms: these are folded into weights."""
    net = Network((3, 32, 32), sparsity, **options)
    y = net.input
    for number, width in enumerate([64, 64, 0, 128, 128, 0, *[256] * 4, 0, *[512] * 4, 0, *[512] * 4]):
        y = net.conv(y, width, 3, dense=number == 0) if width else net.max_pool(y, 2, 2)
    return net.finish(net.conv(net.mean(y), 10, 1, relu=False))


def resnet50(sparsity: float, **options: Any) -> Network:
    net = Network((3, 224, 224), sparsity, **options)
    y = net.max_pool(net.conv(net.input, 64, 7, 2, dense=True), 3, 2, 1)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            narrow = net.conv(net.conv(y, width, 1), width, 3, stride)
            kept = net.conv(y, 4 * width, 1, stride, relu=False, gain=0.5) if block == 0 else y
            y = net.conv(narrow, 4 * width, 1, residual=kept, gain=0.1)
    return net.finish(net.conv(net.mean(y), 1000, 1, relu=False))


LAYERS = {
    "3x3 64 @56": (64, 56, (64, 3)),
    "3x3 128 @28": (128, 28, (128, 3)),
    "3x3 256 @14": (256, 14, (256, 3)),
    "3x3 512 @7": (512, 7, (512, 3)),
    "1x1 64<->256 @56": (64, 56, (256, 1), (64, 1)),
    "1x1 128<->512 @28": (128, 28, (512, 1), (128, 1)),
    "1x1 256<->1024 @14": (256, 14, (1024, 1), (256, 1)),
    "1x1 512<->2048 @7": (512, 7, (2048, 1), (512, 1)),
    "3x3 64 @32": (64, 32, (64, 3)),
    "3x3 128 @16": (128, 16, (128, 3)),
    "3x3 256 @8": (256, 8, (256, 3)),
    "3x3 512 @4": (512, 4, (512, 3)),
    "3x3 512 @2": (512, 2, (512, 3)),
}
"""Channels, size, and the convolutions that a layer's network repeats, each with its output channels and kernel."""


def layer(name: str, sparsity: float, repeats: int, **options: Any) -> Network:
    channels, size, *convs = LAYERS[name]
    net = Network((channels, size, size), sparsity, **options)
    y = net.input
    for _ in range(repeats):
        for outs, kernel in convs:
            y = net.conv(y, outs, kernel)
    return net.finish(y)


def tune(plan: NativePlan, seconds: float) -> None:
    """Every step in the way that was fastest; layers alike are measured once."""
    known: dict[tuple[Any, ...], Any] = {}
    for step in plan.steps():
        if not step.tunable:
            continue
        choices = tuple(plan.choices(step.number))
        like = (step.text, choices, step.weights.bit_length())
        if like not in known:
            times = {}
            for choice in choices:
                plan.choose(step.number, choice)
                times[choice] = plan.measure_step(step.number, seconds)
            known[like] = min(times, key=lambda choice: times[choice])
        plan.choose(step.number, known[like])


def processor_seconds(call: Callable[[], object], seconds: float) -> Callable[[], float]:
    """Measures again for so long whenever it is called; the least of all of them."""
    least = float("inf")

    def measure() -> float:
        nonlocal least
        end = time.process_time() + seconds
        while time.process_time() < end:
            begin = time.process_time()
            call()
            least = min(least, time.process_time() - begin)
        return least

    return measure


def openvino_call(module: nn.Module, x: torch.Tensor) -> Callable[[], object] | None:
    try:
        import openvino
    except ImportError:
        return None
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    model = openvino.convert_model(module, example_input=x)
    model.reshape(list(x.shape))
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    given = openvino.Tensor(x.numpy())
    return lambda: request.infer({0: given})


def engines(net: Network, dense: bool, seconds: float) -> dict[str, Callable[[], float]]:
    """What can be measured of a network."""
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((net.batch, *net.shape), dtype=np.float32))
    given = [x.numpy()]
    found: dict[str, Callable[[], object]] = {"granet": lambda: net.plan.run(given)}
    if dense:
        module = net.module()
        with torch.inference_mode():
            expected = module(x).double().numpy()
        error = np.abs(net.plan.run(given)[0] - expected).max() / np.abs(expected).max()
        assert error < (1e-4 if net.bits == 32 else 2e-2), error
        found["torch"] = torch.inference_mode()(lambda: module(x))
        if (call := openvino_call(module, x)) is not None:
            found["openvino"] = call
    return {name: processor_seconds(call, seconds) for name, call in found.items()}


def measured(nets: dict[float, Network], seconds: float) -> dict[str, float]:
    """Seconds of every engine, in turns: of ours for every sparsity, of the others for the first one."""
    first = next(iter(nets))
    every = {}
    for sparsity, net in nets.items():
        for name, measure in engines(net, sparsity == first, seconds / 5).items():
            every[f"{name} {sparsity:g}" if name == "granet" else name] = measure
    for _ in range(5):
        times = {name: measure() for name, measure in every.items()}
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help="instead of layers")
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9, 0.95, 0.98])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--isa", help="instead of the best one")
    parser.add_argument("--bits", type=int, default=32, choices=(32, 16))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument(
        "--tune", type=float, default=0.01, help="seconds for each choice; 0: as chosen without measuring"
    )
    parser.add_argument("--steps", action="store_true", help="where the time goes")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    options = {"batch": asked.batch, "isa": asked.isa, "bits": asked.bits}
    isa = asked.isa or next(iter(isas(asked.bits)), None)
    if isa is None:
        raise SystemExit(f"--bits {asked.bits}: this processor has no arithmetic of {asked.bits} bits")
    print(f"{isa}, batch {asked.batch}, one thread, fp{asked.bits}; milliseconds")
    for name in asked.networks:
        nets = {sparsity: globals()[name](sparsity, **options) for sparsity in asked.sparsity}
        for net in nets.values():
            if asked.tune:
                tune(net.plan, asked.tune)
        times = measured(nets, asked.seconds)
        against = {other: times[other] for other in ("openvino", "torch") if other in times}
        print(name, ", ".join(f"{other} {took * 1e3:.2f}" for other, took in against.items()))
        for sparsity, net in nets.items():
            took = times[f"granet {sparsity:g}"]
            ratios = ", ".join(f"{of / took:.2f} times {other}" for other, of in against.items())
            print(f"  {sparsity:.0%}: {took * 1e3:.3f}  {ratios}", flush=True)
            if asked.steps:
                for step, of in zip(net.plan.steps(), net.plan.measure(asked.seconds), strict=True):
                    rate = 2 * asked.batch * step.multiply_adds / of / 1e9
                    chosen = net.plan.chosen(step.number) if step.tunable else ""
                    print(f"    {of * 1e6:9.1f} us {rate:6.1f} GFLOP/s  {step.text}  {chosen}")
    if asked.networks:
        return
    for name in LAYERS:
        few, many = ({s: layer(name, s, n, **options) for s in asked.sparsity} for n in (2, 6))
        for net in (*few.values(), *many.values()):
            if asked.tune:
                tune(net.plan, asked.tune)
        short, long = measured(few, asked.seconds), measured(many, asked.seconds)
        once = {each: (long[each] - short[each]) / 4 for each in short}
        line = f"{name:20}" + "".join(
            f" {other} {once[other] * 1e3:6.3f}" for other in ("openvino", "torch") if other in once
        )
        for sparsity, net in few.items():
            took = once[f"granet {sparsity:g}"]
            flops = 2 * asked.batch * sum(step.multiply_adds for step in net.plan.steps()) / 2
            ratio = f" ({once['openvino'] / took:.1f})" if "openvino" in once else ""
            line += f"  {sparsity:.0%}: {took * 1e3:.3f} {flops / took / 1e9:.0f} GFLOP/s{ratio}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
