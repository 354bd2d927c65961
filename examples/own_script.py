"""A training script such as you may have, and the lines that make it sparse, each marked `granet`.

A small convolutional network learns the digits that come with the package, in less than a minute on a CPU. Stop it
whenever you like, or kill it: started again, it goes on from its last checkpoint to the same weights.

    python examples/own_script.py
"""

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

import granet
from granet.data import load

EPOCHS = 20
CHECKPOINT = Path("own_script.pt")
PACKED = Path("own_script.safetensors")

data = load("digits")


def normalised(images: Tensor) -> Tensor:
    return (images / 255 - data.mean[0]) / data.std[0]


shuffling = torch.Generator()
loader = DataLoader(
    TensorDataset(normalised(data.train_images), data.train_labels), batch_size=64, shuffle=True, generator=shuffling
)

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU()),
    *(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
    *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
total_steps = EPOCHS * len(loader)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=total_steps)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98), use_buffers=True)

parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "average": average}
saved = torch.load(CHECKPOINT, weights_only=True) if CHECKPOINT.exists() else {}
first_epoch = saved.pop("epoch", -1) + 1

method = granet.GraNet(sparsity=0.95, prune_end="60%", every=20)  # granet
state = saved.pop("sparsifier", None)  # granet: the masks, the clock and the history are part of a checkpoint
sparsifier = granet.sparsify(model, optimizer, method, total_steps=total_steps, state=state)  # granet

for name, state in saved.items():
    parts[name].load_state_dict(state)
    print(f"{name} goes on from epoch {first_epoch}")
parts["sparsifier"] = sparsifier  # granet

for epoch in range(first_epoch, EPOCHS):
    shuffling.manual_seed(epoch)
    model.train()
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        sparsifier.mask_gradients()  # granet: only because gradients are clipped; inactive weights do not count then
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # masks are applied, and updated when it is time
        optimizer.zero_grad()
        scheduler.step()
        average.update_parameters(model)
    with CHECKPOINT.with_suffix(".new").open("wb") as file:
        torch.save({"epoch": epoch, **{name: part.state_dict() for name, part in parts.items()}}, file)
    os.replace(file.name, CHECKPOINT)
    print(f"epoch {epoch:2}  loss {loss.item():.3f}  sparsity {sparsifier.sparsity:.4f}", flush=True)
sparsifier.finish()  # granet: the weights are plain ones with exact zeros, whatever the method

final = average.module.eval()
sparsifier.apply_to(final)  # granet: an average is not zero where weights were pruned on the way
with torch.no_grad():
    test_images = normalised(data.test_images)
    accuracy = (final(test_images).argmax(1) == data.test_labels).float().mean()

report = granet.flops(final, test_images[:1])  # granet: counts nonzero weights
granet.save(final, PACKED, sparsifier)  # granet: zeros take hardly any room
dense_size = sum(tensor.nbytes for tensor in final.state_dict().values())
size = PACKED.stat().st_size / dense_size
print(f"test accuracy {accuracy:.2%}, {report.ratio:.1%} of the FLOPs, {size:.1%} of the size")
CHECKPOINT.unlink()
