"""Seconds of training to an accuracy on CIFAR-10: the program's fast recipes beside PyTorch, on one GPU.

    python benches/time_to_accuracy.py --program target/release/ftprop --data cifar-10-batches-bin --seeds 5

Each network is trained by the program and by PyTorch one after another, same layers, epochs, batch, augmentation and
optimizers; PyTorch is compiled (max-autotune, which uses CUDA graphs) and computes in bf16, channels last. Its data are on
the GPU, and an epoch is augmented in one go. What is timed is training alone: neither side's evaluation, compiling or
choosing of kernels is in it; those stand beside. Accuracies are of the last epoch, without test-time augmentation.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


# Hard activations whose gradients are those of the soft hinge: the derivative of tanh is 1 - tanh².
def sign(z: torch.Tensor) -> torch.Tensor:
    soft = torch.tanh(z)
    return soft + (torch.where(z > 0, 1.0, -1.0).to(z.dtype) - soft).detach()


def qrelu(z: torch.Tensor) -> torch.Tensor:
    soft = torch.tanh(2 * z - 1) / 2
    return soft + ((torch.ceil(z * 2).clamp(0, 3) / 3).to(z.dtype) - soft).detach()


class Act(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.f = {"sign": sign, "qrelu": qrelu, "relu": F.relu}[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x)


class Around(nn.Module):
    """A way around a path."""

    def __init__(self, main: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.main(x) + self.shortcut(x)


def conv(inputs: int, outputs: int, kernel: int = 3) -> nn.Conv2d:
    made = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    if kernel == 3:
        nn.init.dirac_(made.weight[: min(inputs, outputs)])
    return made


def network(name: str, act: str) -> nn.Sequential:
    norm, halve = nn.BatchNorm2d, lambda: nn.MaxPool2d(2)
    first = [nn.Conv2d(3, 24, 2, bias=True), nn.ReLU()]
    if name == "fast":
        layers: list[nn.Module] = [*first, conv(24, 64), halve(), norm(64)]
        width = 64
        for stage, out in enumerate((64, 256, 256)):
            if stage:
                main = nn.Sequential(Act(act), conv(width, out), halve(), norm(out))
                layers.append(Around(main, nn.Sequential(halve(), conv(width, out, 1), norm(out))))
            layers.append(Around(nn.Sequential(Act(act), conv(out, out), norm(out)), nn.Identity()))
            width = out
    else:
        layers, width = first, 24
        for out in (64, 256, 256):
            layers += [conv(width, out), halve(), norm(out), Act(act), conv(out, out), norm(out), Act(act)]
            width = out
    return nn.Sequential(*layers, nn.MaxPool2d(3), nn.Flatten(), nn.Linear(256, 10))


@torch.no_grad()
def whiten(layer: nn.Conv2d, images: torch.Tensor) -> None:
    patches = images.float().unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + 5e-4).sqrt()).T.flip(0).view(-1, 3, 2, 2)
    layer.weight.copy_(torch.cat([filters, -filters]))
    layer.weight.requires_grad_(False)


def zeropower(g: torch.Tensor) -> torch.Tensor:
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16() / (g.norm() + 1e-7)
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if tall else x


class Muon:
    def __init__(self, weights: list[nn.Parameter], lr: float, momentum: float, compile: bool) -> None:
        self.weights, self.lr, self.momentum = weights, lr, momentum
        self.buffers = [torch.zeros_like(w) for w in weights]
        self.direction = torch.compile(zeropower) if compile else zeropower

    @torch.no_grad()
    def step(self, factor: float) -> None:
        for w, buffer in zip(self.weights, self.buffers):
            buffer.mul_(self.momentum).add_(w.grad)
            g = w.grad.add(buffer, alpha=self.momentum)
            w.mul_(len(w) ** 0.5 / w.norm())
            w.add_(self.direction(g.reshape(len(g), -1)).view_as(w).to(w.dtype), alpha=-self.lr * factor)


def read(folder: pathlib.Path, device: str) -> tuple[torch.Tensor, ...]:
    def part(names: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        rows = np.concatenate([np.fromfile(folder / n, np.uint8).reshape(-1, 3073) for n in names])
        images = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy()).to(device).float() / 255
        mean, std = (torch.tensor(v, device=device).view(1, 3, 1, 1) for v in (MEAN, STD))
        return (images - mean) / std, torch.from_numpy(rows[:, 0].astype(np.int64)).to(device)

    train = part([f"data_batch_{i}.bin" for i in range(1, 6)])
    return (*train, *part(["test_batch.bin"]))


def augmented(padded: torch.Tensor, flips: torch.Tensor, epoch: int) -> torch.Tensor:
    """Random windows of the padded images, each mirrored in every other epoch."""
    n, pad = len(padded), (padded.shape[-1] - 32) // 2
    shift = torch.randint(0, 2 * pad + 1, (n, 2), device=padded.device)
    out = torch.empty((n, 3, 32, 32), device=padded.device, dtype=padded.dtype)
    for y in range(2 * pad + 1):
        for x in range(2 * pad + 1):
            mask = (shift[:, 0] == y) & (shift[:, 1] == x)
            out[mask] = padded[mask][:, :, y : y + 32, x : x + 32]
    turned = (flips + epoch) % 2 == 0
    return torch.where(turned.view(-1, 1, 1, 1), out.flip(-1), out)


class Torch:
    """One network in PyTorch, compiled once for all seeds."""

    def __init__(self, name: str, act: str, recipe: dict, data: tuple[torch.Tensor, ...], device: str, compile: bool):
        self.name, self.act, self.recipe, self.data = name, act, recipe, data
        self.device, self.compile = device, compile
        self.kind = torch.bfloat16 if device != "cpu" else torch.float32
        self.images = data[0].to(self.kind).contiguous(memory_format=torch.channels_last)
        self.padded = F.pad(self.images, (2,) * 4, "reflect")
        self.module = network(name, act).to(device).to(memory_format=torch.channels_last)
        run = lambda x: self.module(x)
        self.forward = torch.compile(run, mode="max-autotune") if compile else run

    def sync(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def reset(self, seed: int) -> None:
        torch.manual_seed(seed)
        fresh = network(self.name, self.act).to(self.device).to(memory_format=torch.channels_last)
        self.module.load_state_dict(fresh.state_dict())
        whiten(self.module[0], self.images[:2000])
        weights = [p for n, p in self.module.named_parameters() if p.ndim == 4 and n != "0.weight"]
        matrices = set(map(id, weights)) | {id(self.module[0].weight)}
        others = [p for p in self.module.parameters() if id(p) not in matrices]
        r = self.recipe
        self.muon = Muon(weights, r["muon"], 0.6, self.compile)
        self.adam = torch.optim.Adam(others, lr=r["adam"], fused=self.device != "cpu")

    def train(self, seed: int, epochs: int | None = None) -> tuple[float, float]:
        """Seconds of training, and the accuracy after it."""
        self.reset(seed)
        r, labels = self.recipe, self.data[1]
        epochs = epochs or r["epochs"]
        steps, n, batch = r["epochs"] * (len(labels) // r["batch"]), len(labels), r["batch"]
        flips = torch.randint(0, 2, (n,), device=self.device)
        self.module.train()
        self.sync()
        began, step = time.perf_counter(), 0
        for epoch in range(epochs):
            images, order = augmented(self.padded, flips, epoch), torch.randperm(n, device=self.device)
            for first in range(0, n - batch + 1, batch):
                some = order[first : first + batch]
                x = images[some].contiguous(memory_format=torch.channels_last)
                with torch.autocast(self.device, self.kind, enabled=self.kind != torch.float32):
                    logits = self.forward(x)
                F.cross_entropy(logits.float(), labels[some], label_smoothing=r["smoothing"]).backward()
                factor = 1 - step / steps
                self.adam.param_groups[0]["lr"] = r["adam"] * factor
                self.adam.step()
                self.muon.step(factor)
                for p in self.module.parameters():
                    p.grad = None
                step += 1
        self.sync()
        seconds = time.perf_counter() - began
        return seconds, self.accuracy()

    @torch.no_grad()
    def accuracy(self) -> float:
        self.module.eval()
        right = 0
        for x, y in zip(self.data[2].split(1000), self.data[3].split(1000)):
            with torch.autocast(self.device, self.kind, enabled=self.kind != torch.float32):
                right += (self.module(x.to(self.kind)).argmax(1) == y).sum().item()
        return right / len(self.data[3])


def ours(program: str, data: pathlib.Path, arguments: list[str], seed: int, device: str) -> tuple[float, float, float]:
    """Seconds of training, those with an evaluation after each epoch, and the last epoch's accuracy."""
    folder = pathlib.Path(tempfile.mkdtemp())
    command = [program, "train", *arguments, "--data", str(data), "--seed", str(seed), "--quiet"]
    subprocess.run([*command, "--device", device, "--out", str(folder / "run")], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(folder)
    return sum(50_000 / r["images_per_s"] for r in rows), sum(r["seconds"] for r in rows), rows[-1]["test"]["top1"]


CASES = [
    # what it is called, the program's recipe, PyTorch's network, activation and settings
    ("fast, sign", ["--recipe", "fast-sign"], "fast", "sign", dict(epochs=16, batch=500, muon=0.1, adam=3e-3, smoothing=0.2)),
    ("fast, qReLU 3", ["--recipe", "fast-qrelu"], "fast", "qrelu", dict(epochs=16, batch=500, muon=0.1, adam=3e-3, smoothing=0.2)),
    ("speed recipe, sign", ["--recipe", str(HERE / "speed-sign.toml")], "speed", "sign", dict(epochs=8, batch=2000, muon=0.24, adam=5e-3, smoothing=0.2)),
]


def spread(values: list[float], digits: int) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="ftprop")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("cifar-10-batches-bin"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--minutes", type=float, default=60, help="begin no new case after so long")
    parser.add_argument("--out", type=pathlib.Path, help="write the table there as well")
    args = parser.parse_args()
    device = "cpu" if args.device == "cpu" else "cuda"
    data = read(args.data, device)
    began = time.perf_counter()
    gpu = "CPU" if device == "cpu" else torch.cuda.get_device_name()
    lines = [
        "# Time to accuracy",
        "",
        f"{gpu}, PyTorch {torch.__version__}, CIFAR-10, {args.seeds} seeds each; means, with the smallest and the largest.",
        "Made by `benches/time_to_accuracy.py`, which says what is timed. No test-time augmentation.",
        "",
        "| | training, s | accuracy, % | before the first step, s |",
        "| --- | --- | --- | --- |",
    ]
    ratios = []
    for title, arguments, net, act, recipe in CASES:
        if args.only and args.only not in title or time.perf_counter() - began > 60 * args.minutes:
            continue
        start = time.perf_counter()
        ours(args.program, args.data, [*arguments, "--epochs", "1"], 1, args.device)
        first = time.perf_counter() - start
        runs = [ours(args.program, args.data, arguments, seed, args.device) for seed in range(1, args.seeds + 1)]
        own = [r[0] for r in runs]
        lines.append(
            f"| {title}: ftprop | {spread(own, 2)} | {spread([100 * r[2] for r in runs], 2)} | {first:.1f} with an epoch |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
        start = time.perf_counter()
        torch_side = Torch(net, act, recipe, data, device, not args.no_compile)
        torch_side.train(1, epochs=1)
        torch_side.accuracy()
        torch_side.module.train()
        first = time.perf_counter() - start
        runs = [torch_side.train(seed) for seed in range(1, args.seeds + 1)]
        lines.append(
            f"| {title}: PyTorch | {spread([r[0] for r in runs], 2)} | {spread([100 * r[1] for r in runs], 2)} | {first:.1f} with an epoch |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
        ratios.append(f"{title}: {statistics.mean(r[0] for r in runs) / statistics.mean(own):.2f}×")
    lines += ["", "Training time, PyTorch's over the program's: " + "; ".join(ratios) + "."]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
