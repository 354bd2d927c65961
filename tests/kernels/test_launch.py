"""A kernel is looked for once for each set of constants, and then launched as it was found."""

import torch

from granet.kernels.launch import launch


class Kernel:
    """Stands in for Triton's: tells what was compiled, and what was launched without that."""

    def __init__(self) -> None:
        self.compiled: list[tuple[object, ...]] = []
        self.launched: list[tuple[object, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]):
        return lambda *arguments: self._compile(grid, *arguments)

    def _compile(self, grid: tuple[int, ...], *arguments: object) -> "Ready":
        self.compiled.append((grid, *arguments))
        return Ready(self)


class Ready:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]):
        return lambda *arguments: self._kernel.launched.append((grid, *arguments))


def test_constants_tell_whether_a_kernel_is_there() -> None:
    kernel, one, two = Kernel(), torch.zeros(1), torch.zeros(1)
    launch(kernel, 7, (one,), 3, "a")
    launch(kernel, 8, (two,), 3, "a")
    launch(kernel, 9, (one,), 3, "b")
    assert kernel.compiled == [((7,), one, 3, "a"), ((9,), one, 3, "b")]
    assert kernel.launched == [((8, 1, 1), two, 3, "a")]
