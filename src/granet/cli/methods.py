"""`granet methods`: the registry as a table in the terminal, or as the page `docs/methods.md`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import granet
from granet.cli.markdown import markdown_table

if TYPE_CHECKING:
    from rich.console import Console

_INTRODUCTION = """\
# Methods

All methods side by side: when each chooses its masks, by what, and at what cost; below the table is what its columns
mean. `granet methods` shows in the terminal what each method needs, and describes it in a line. (This page is printed
by `granet methods --markdown` from the registry, `granet.list_methods()`.)
"""

_COLUMNS = """\
- **when**: when the masks are chosen. Masks chosen before or after training stay fixed, except that `prune-regrow`
  regrows as many weights as it pruned after its first step. Methods after training start from a finished first run,
  `trained=`; without it the model is that run, but for `lth`. `granet.prune(model, method)` prunes in one call, without
  an optimizer, by any method whose masks stay fixed.
- **score**: what decides which weights stay. LAMP ([Lee et al. 2021](https://arxiv.org/abs/2010.07611)), chosen by
  `score="lamp"`, is a weight's square over the sum of all squares in its layer that are not smaller.
- **distribution**: how layers share the weights that stay, unless the field `distribution` says otherwise.
  - Global: all layers are ranked together.
  - Uniform: all layers have the same density; where pruning is gradual, the last one keeps at least 20 %.
  - ER: density is proportional to (outputs + inputs) / (outputs x inputs). Small layers stay denser, and may be dense.
  - ERK: likewise, with the sum of all dimensions of the weight over their product, including those of the kernel.
- **growth**: what decides which weights return. Hidden weights are dense values behind those that the model shows, up
  to `sparsifier.finish()`.
- **target**: exact means that the number of zeros is the one that `sparsity` asks for, to the weight (to the block or
  group, with a pattern). Otherwise the cell says what sets the sparsity.
- **extra cost**: beyond a dense step and what all methods take: masks, one byte per weight (two where whole filters
  are dropped), and one elementwise operation on the gradients. With `grow_batch_count` above 1, growth by gradient
  takes one float per weight more. [Counting](counting.md#training) says how training FLOPs are counted.

All methods take all convolution and linear weights unless `exclude` names them. Some authors leave layers dense: the
first (`rigl` with the uniform distribution), the last (`set`), shortcuts (`synflow`), or all of these (`dsr`).

## Where we differ from the authors' programs

The numbers that are asked for are met to the weight, which the programs do not always do.

- `granet` prunes at t_f too, as Equation 1 of the paper says; the authors' program ends one update before and does not
  quite reach the sparsity asked for.
- `granet` keeps k weights where k are to stay; the program keeps those above the k-th largest on CIFAR, k - 1.
- `granet` begins with exactly the numbers of weights that ERK gives the layers; the program draws each weight's bit by
  itself, so that these numbers are random.
- `granet` keeps, of weights of equal size, those that come first; the program drops all that are no larger than the
  last one to go, which are far too many where weights are zero, as in dead filters.
- `granet` grows nothing after the very last step, since that would never be trained; the program may.
- `rigl` ranks by magnitude alone, so that masks are the same on every device and rank; the program adds a little noise.
- `rigl` takes the optimizer's step on the steps of an update too, so that no batch is lost; the program does not, nor
  does `step_on_update=False`.
- `snfs` shares what full layers cannot take by momentum, as all that grows; the program shares it equally.
- `snip` scores in training mode, in which the first step runs, and spares biases, as every method here does; the
  program scores in inference mode and prunes biases too.
- `grasp` scores the weights that will be trained; the program scores a copy whose linear layers are drawn anew.

What a method adds to or leaves out of its paper beyond that is said in its docstring.

## With a pattern

[Patterns](patterns.md) keep or drop whole blocks or filters, or a number of weights in each group.

- Blocks and filters are ranked by the mean absolute score of their weights, to drop and to grow; `grasp` takes the mean
  with its sign.
- `deep-r` drops those whose weights, each times its first sign, sum to less than zero.
- `str` shrinks them as the group lasso does, w relu(1 - threshold / size), where size is their root mean square.
- `sis` minimises the sum over them of size times number of weights, in place of the l1 norm.
- `vd` cuts them by log(sum of variances / sum of squares).
- N:M and fan-in ask for a number in each group, which the thresholds of `sis`, `str` and `vd` and the rates of
  `prune-once` and `prune-regrow` do not give. N:M gives all layers the same density, so it rules out `dsr` and `snfs`,
  which share weights out among layers.

## Finding the setting for a sparsity

Given a `sparsity`, `sis` searches for its tolerance, and `vd` cuts to it in `finish()`, as does `str` where training
ended less sparse. So that little is left to cut, look for an `s_init` that ends near it by itself: every trial is a
whole training. `bisect_knob` chooses which setting to try next; if none comes near enough, its error says how near they
came. `low` is the end that gives too little sparsity, `high` the one that gives too much, whichever number is larger:

```python
from granet.search import bisect_knob


def sparsity_of(exponent: float) -> float:
    sparsifier = train(granet.STR(s_init=-(10**exponent)))  # your training
    sparsifier.finish()
    return sparsifier.sparsity


exponent = bisect_knob(sparsity_of, target=0.95, low=8, high=1, tolerance=0.01)
```
"""

_ORDER = (
    "before training",
    "during, from sparse",
    "during, from dense or sparse",
    "during, from dense",
    "during",
    "after training",
)


@dataclass(frozen=True)
class Methods:
    """List the sparse training methods and what each can do and needs."""

    markdown: bool = False
    """Print the page docs/methods.md instead, with scores, distributions, growth and costs."""

    def run(self, console: Console) -> None:
        """Print the page, or the needs as a table and then one line about each."""
        methods = sorted(granet.list_methods(), key=lambda info: (_ORDER.index(info.when), info.name))
        if self.markdown:
            print(methods_page(methods), end="", file=console.file)  # not the console's own print, which wraps lines
            return
        from rich.text import Text

        from granet.cli.console import methods_table

        console.print(methods_table(methods))
        for info in methods:
            console.print(Text.assemble((info.name, "bold"), f": {info.summary} ({info.paper})"), soft_wrap=True)


def methods_page(methods: Iterable[granet.MethodInfo]) -> str:
    """The methods in Markdown, a row each."""
    header = ("method", "when", "score", "distribution", "growth", "target", "extra cost", "paper")
    return "\n".join((_INTRODUCTION, markdown_table([header, *map(_cells, methods)]), _COLUMNS))


def _cells(info: granet.MethodInfo) -> tuple[str, ...]:
    texts = (info.when, info.score, info.distribution, info.growth, info.target, info.cost)
    return f"`{info.name}`", *(text or "none" for text in texts), linked(info.paper)


def linked(paper: str) -> str:
    """A paper's authors, in Markdown, as links to what they are followed by.

    >>> linked("Zhu & Gupta 2017, arXiv 1710.01878; Gale et al. 2019")
    '[Zhu & Gupta 2017](https://arxiv.org/abs/1710.01878); Gale et al. 2019'
    """
    addressed = paper.replace("arXiv ", "https://arxiv.org/abs/")
    return "; ".join(re.sub(r"(.+), (https://\S+)", r"[\1](\2)", one) for one in addressed.split("; "))
