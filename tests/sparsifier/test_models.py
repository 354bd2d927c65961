"""Any model: dtypes, memory layouts, tied weights, every kind of convolution, compiled or not."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import granet

Kit = SimpleNamespace
STEPS = 10
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


def start(
    model: nn.Module, method: granet.Method = METHOD, also: str | tuple[str, ...] = ()
) -> tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.01)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS, also=also)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_one_dtype(kit: Kit, dtype: torch.dtype) -> None:
    """bfloat16 weights tie all the time, so exact counts are no accident here."""
    model, optimizer, sparsifier = start(kit.net(dtype=dtype))
    for batch in kit.batches(STEPS, dtype=dtype):
        kit.backward(model, batch)
        optimizer.step()
        optimizer.zero_grad()
        kit.check_zeros(sparsifier)
        kit.check_count(sparsifier)
    for layer in sparsifier.layers.values():
        assert layer.mask.dtype == torch.bool
        assert torch.count_nonzero(optimizer.state[layer.weight]["momentum_buffer"][~layer.mask]) == 0


class Mixed(nn.Module):
    """A layer of each floating-point type."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
        self.layers = nn.ModuleList(nn.Linear(10, 10).to(dtype) for dtype in self.dtypes)

    def forward(self, x: Tensor) -> Tensor:
        for dtype, layer in zip(self.dtypes, self.layers, strict=True):
            x = layer(x.to(dtype)).relu() + x.to(dtype)
        return x.float()


def test_several_dtypes_share_one_budget() -> None:
    torch.manual_seed(0)
    model, optimizer, sparsifier = start(Mixed())
    for _ in range(STEPS):
        model(torch.randn(8, 10)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sum(int(mask.sum()) for mask in sparsifier.masks.values()) == 400 - 320
    for layer in sparsifier.layers.values():
        assert torch.count_nonzero(layer.weight[~layer.mask]) == 0


KINDS = {
    "conv1d": (nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "conv2d": (nn.Conv2d(4, 6, (3, 2)), (2, 4, 6, 6)),
    "conv3d": (nn.Conv3d(4, 6, 2), (2, 4, 4, 4, 4)),
    "grouped": (nn.Conv2d(4, 8, 3, groups=2), (2, 4, 6, 6)),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8), (2, 8, 6, 6)),
    "transposed1d": (nn.ConvTranspose1d(4, 6, 3), (2, 4, 9)),
    "transposed2d": (nn.ConvTranspose2d(4, 6, 3), (2, 4, 6, 6)),
    "transposed3d": (nn.ConvTranspose3d(4, 6, 2), (2, 4, 4, 4, 4)),
    "linear": (nn.Linear(9, 7), (2, 9)),
    "linear on sequences": (nn.Linear(9, 7, bias=False), (2, 5, 9)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer(kind: str) -> None:
    layer, shape = KINDS[kind]
    model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(5))
    model(torch.randn(shape))
    model, optimizer, sparsifier = start(model)
    assert set(sparsifier.layers) == {"0.weight", "2.weight"}
    for step in range(STEPS):
        torch.manual_seed(step)
        model(torch.randn(shape)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    numel = sum(view.numel for view in sparsifier.layers.values())
    assert sum(view.active for view in sparsifier.layers.values()) == numel - round(numel * 0.8)
    assert all(torch.count_nonzero(view.weight[~view.mask]) == 0 for view in sparsifier.layers.values())


def test_channels_last_is_the_same_training(kit: Kit) -> None:
    """In float64, where another order of summation does not change a choice."""
    plain = start(kit.net(dtype=torch.float64))
    strided = start(kit.net(dtype=torch.float64).to(memory_format=torch.channels_last))
    assert strided[2].masks["0.weight"].is_contiguous(memory_format=torch.channels_last)
    for x, y in kit.batches(STEPS, dtype=torch.float64):
        for model, optimizer, _ in (plain, strided):
            kit.backward(model, (x if model is plain[0] else x.to(memory_format=torch.channels_last), y))
            optimizer.step()
            optimizer.zero_grad()
        kit.check_zeros(strided[2])
    for name, mask in plain[2].masks.items():
        assert torch.equal(mask, strided[2].masks[name]), name
    assert strided[0][0].weight.is_contiguous(memory_format=torch.channels_last)


def test_the_default_device_does_not_matter(kit: Kit) -> None:
    """torch makes new tensors there, but a model may be elsewhere, and files are always read on the host."""
    momentum = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    for make in (momentum, partial(torch.optim.Adagrad, initial_accumulator_value=0.1)):
        snapshots = []
        for device in ("cpu", "meta"):
            model = kit.net()
            optimizer, batches = make(model.parameters()), list(kit.batches(STEPS))
            with torch.device(device):
                sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
                for batch in batches:
                    kit.backward(model, batch)
                    optimizer.step()
                    optimizer.zero_grad()
                    sparsifier.load_state_dict(sparsifier.state_dict())
            assert [record.step for record in sparsifier.history] == [2, 4, 6, 8]
            snapshots.append(kit.snapshot(model, optimizer, sparsifier))
        kit.check_equal(*snapshots)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(self.embedding(x)))


def test_a_tied_weight_counts_once() -> None:
    torch.manual_seed(0)
    model, optimizer, sparsifier = start(Tied(), also="head.*")
    assert list(sparsifier.layers) == ["embedding.weight", "mix.weight"]
    assert sum(layer.numel for layer in sparsifier.layers.values()) == 72 + 36
    for _ in range(STEPS):
        tokens = torch.randint(0, 12, (8,))
        nn.functional.cross_entropy(model(tokens), tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model.head.weight is model.embedding.weight
    assert sum(layer.active for layer in sparsifier.layers.values()) == 108 - round(108 * 0.8)
    assert torch.count_nonzero(model.head.weight[~sparsifier.masks["embedding.weight"]]) == 0


def test_a_head_tied_to_an_embedding_stays_dense_and_is_named() -> None:
    with pytest.warns(UserWarning, match=r"outside: embedding\.weight \(tied to an embedding, .*also=") as said:
        _, _, sparsifier = start(Tied())
    assert list(sparsifier.layers) == ["mix.weight"]
    assert len(said) == 1
    assert said[0].filename == __file__


@pytest.mark.parametrize("name", ["embedding.weight", "head.weight"])
def test_any_name_of_a_tied_weight_excludes_it(name: str) -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5), exclude=(name,))
    assert list(sparsifier.layers) == ["mix.weight"]


def test_first_and_last_are_sparse_and_biases_and_norms_never(kit: Kit) -> None:
    _, _, sparsifier = start(kit.net())
    assert list(sparsifier.layers) == ["0.weight", "4.weight", "6.weight"]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_weight_without_elements_is_left_out() -> None:
    model = nn.ModuleList([nn.Linear(4, 0), nn.Linear(4, 4)])
    optimizer = torch.optim.SGD(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    assert list(sparsifier.layers) == ["1.weight"]
    assert sparsifier.sparsity == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_compiled_models_train_the_same(kit: Kit, backend: str, when: str) -> None:
    """The same names and masks, and no recompilation when masks change."""
    torch.compiler.reset()
    inner = torch._dynamo.lookup_backend(backend)
    compilations = []

    def counting(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        compilations.append(graph)
        return inner(graph, inputs)

    plain = start(kit.net())
    model = kit.net()
    if when == "before":
        compiled, optimizer, sparsifier = start(torch.compile(model, backend=counting))
    else:
        _, optimizer, sparsifier = start(model)
        compiled = torch.compile(model, backend=counting)
    assert list(sparsifier.layers) == list(plain[2].layers)
    kit.train(*plain[:2], STEPS)
    kit.train(compiled, optimizer, STEPS)
    kit.check_equal(kit.snapshot(*plain), kit.snapshot(model, optimizer, sparsifier))
    assert len(compilations) == 1
