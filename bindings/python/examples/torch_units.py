"""The paper's units in a network of PyTorch's, compiled, and then packed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import ftprop
from ftprop.torch import HardThreshold, from_module


def main() -> None:
    """Learns which half of a picture is brighter."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        HardThreshold("sign", layer_loss="soft_hinge"),
        nn.Flatten(),
        nn.Linear(8 * 64, 2),
    )
    x = torch.rand(512, 1, 8, 8)
    y = (x[..., :4].mean((1, 2, 3)) > x[..., 4:].mean((1, 2, 3))).long()
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(150):
        adam.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        adam.step()
    run = from_module(net, (1, 8, 8), classes=["right", "left"])
    right = np.array(["right", "left"])[y.numpy()] == run.predict(x.numpy())
    print(f"{right.mean():.3f} after {loss.item():.3f}")
    with tempfile.TemporaryDirectory() as folder:
        print(ftprop.load(run.export(Path(folder) / "halves.ftp"), threads=1))
    assert right.mean() > 0.9


if __name__ == "__main__":
    main()
