#!/usr/bin/env python3
"""Holds ftprop's PyTorch weights to PyTorch itself, for the preset networks.

    benches/check_torch.py FTPROP                             every preset, with random weights that PyTorch made
    benches/check_torch.py FTPROP runs/c8 [--data PATH]       a trained run of a preset

Without a run: PyTorch makes a network (resnet18 is torchvision's own, with the activation in ReLU's place), `ftprop
import` takes its weights, both classify the same pictures, and what `ftprop export --format torch` writes must be the
weights that went in, bit by bit. The pictures are noise in the layouts of CIFAR-10 and ImageNet, made here.

With a run: the exported weights are loaded into PyTorch's network, both classify the whole test part, and the weights that
PyTorch saves are imported and exported again, which must give the same file.

A hard unit whose sum lies within float rounding of its threshold may fall on either side in another program, which sums
in another order. So logits are held to --tolerance with ReLU, and with hard activations for all but --allow of a
hundred pictures.

Needs torch and torchvision (pip install torch torchvision).
"""
import argparse
import json
import struct
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn

from torch_train import alexnet, convnet4, convnet8

CLASSES = 10
RECIPES = {
    "convnet4": "convnet4-sign-ftpsh",
    "convnet8": "convnet8-sign-ftpsh",
    "alexnet": "alexnet-sign-ftpsh",
    "resnet18": "resnet18-sign-ftpsh",
}
# Those for pictures of 32 by 32.
CIFAR = ("convnet4", "convnet8")


class Activation(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, z):
        if self.name == "sign":
            return torch.where(z > 0, 1.0, -1.0)
        if self.name == "step":
            return torch.where(z > 0, 1.0, 0.0)
        if self.name.startswith("qrelu:"):
            k = int(self.name.split(":")[1])
            return (z * (k - 1)).ceil().clamp(0, k) / k
        return {"relu": torch.relu, "saturated_relu": lambda z: z.clamp(0, 1)}[self.name](z)


def network(preset, activation, classes):
    """PyTorch's twin of a preset."""
    act = lambda: Activation(activation)
    if preset == "resnet18":
        model = torchvision.models.resnet18(num_classes=classes)
        for module in list(model.modules()):
            if hasattr(module, "relu"):
                module.relu = act()
        return model
    if preset not in RECIPES:
        sys.exit(f"this script knows {', '.join(RECIPES)}, the run has the network {preset}")
    model = {"convnet4": convnet4, "convnet8": convnet8, "alexnet": alexnet}[preset](act)
    last = model[-1]
    model[-1] = nn.Linear(last.in_features, classes)
    return model


def read_safetensors(path):
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    kinds = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = (8 + size + offset for offset in entry["data_offsets"])
            values = np.frombuffer(data[first:last], kinds[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = torch.from_numpy(values.copy())
    return tensors


def write_safetensors(path, tensors):
    """All that a state dict holds, the norms' counters too."""
    header, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        part = tensor.numpy().tobytes()
        kind = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def pictures(folder, generator):
    """Noise as CIFAR-10 and as folders of photographs."""
    cifar, photos = folder / "cifar", folder / "photos"
    cifar.mkdir()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        count = 100 if name == "test_batch.bin" else 20
        labels = np.arange(count, dtype=np.uint8).reshape(-1, 1) % CLASSES
        pixels = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
        (cifar / name).write_bytes(np.hstack([labels, pixels]).tobytes())
    for part in ("train", "val"):
        for label in range(CLASSES):
            (photos / part / f"class{label}").mkdir(parents=True)
            pixels = generator.integers(0, 256, (256, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(photos / part / f"class{label}" / "noise.png")
    return {"cifar": cifar, "imagenet": photos}


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")


def logits_of(model, images):
    with torch.no_grad():
        return torch.cat([model(part.permute(0, 3, 1, 2).contiguous()) for part in images.split(64)])


def compare(name, hard, found, expected, options):
    """How far PyTorch's logits are from ftprop's."""
    distance = (found - expected).abs().amax(1)
    other = int((found.argmax(1) != expected.argmax(1)).sum())
    far = int((distance > options.tolerance).sum())
    print(f"{name}: {len(distance)} pictures, another class on {other}, a logit further than {options.tolerance:g} away "
          f"on {far}; largest distance {distance.max():.3g}, median {distance.median():.3g}", flush=True)
    allowed = options.allow * len(distance) / 100 if hard else 0
    return max(other, far) <= allowed


def from_torch(preset, activation, data, folder, options):
    torch.manual_seed(1)
    model = network(preset, activation, CLASSES)
    # Statistics of its own for every norm, and slopes of both signs.
    side = 32 if preset in CIFAR else 224
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.momentum = None
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    with torch.no_grad():
        model.train()(torch.randn(16, 3, side, side))
    model.eval()
    write_safetensors(folder / "there.safetensors", model.state_dict())
    out = folder / f"{preset}-{activation.replace(':', '')}"
    run(options.program, "import", folder / "there.safetensors", "--recipe", RECIPES[preset], "--data", data,
        "--set", f"activation={activation}", "--out", out)
    run(options.program, "eval", out, "--save", folder / "record.safetensors", "--device", "cpu")
    run(options.program, "export", out, "-o", folder / "back.safetensors", "--format", "torch")
    record, back = read_safetensors(folder / "record.safetensors"), read_safetensors(folder / "back.safetensors")
    near = compare(f"{preset} {activation}", activation != "relu", logits_of(model, record["images"]), record["logits"],
                   options)
    weights = {name: t for name, t in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    same = weights.keys() == back.keys() and all(torch.equal(weights[name], back[name]) for name in weights)
    print(f"  {len(weights)} tensors came back {'unchanged' if same else 'CHANGED'}", flush=True)
    return near and same


def from_run(options, folder):
    source = Path(options.run)
    recipe = tomllib.loads((source / "recipe.toml").read_text())
    preset, activation = recipe["network"]["preset"], recipe["activation"]
    data = ["--data", options.data] if options.data else []
    run(options.program, "export", source, "-o", folder / "there.safetensors", "--format", "torch")
    run(options.program, "eval", source, "--save", folder / "record.safetensors", "--device", "cpu", *data)
    record, weights = read_safetensors(folder / "record.safetensors"), read_safetensors(folder / "there.safetensors")
    model = network(preset, activation, record["logits"].shape[1]).eval()
    model.load_state_dict(weights)
    near = compare(f"{preset} {activation}", activation != "relu", logits_of(model, record["images"]), record["logits"],
                   options)
    write_safetensors(folder / "torch.safetensors", model.state_dict())
    run(options.program, "import", folder / "torch.safetensors", "--recipe", source / "recipe.toml", *data,
        "--out", folder / "back")
    run(options.program, "export", folder / "back", "-o", folder / "back.safetensors", "--format", "torch")
    same = (folder / "there.safetensors").read_bytes() == (folder / "back.safetensors").read_bytes()
    print(f"  the file that came back from PyTorch is {'the same' if same else 'ANOTHER'}", flush=True)
    return near and same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the ftprop to run")
    parser.add_argument("run", nargs="?", help="a run folder; every preset with random weights if none is given")
    parser.add_argument("--data", help="where a run's data is, if not where it was in training")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="how far a logit may be away")
    parser.add_argument("--allow", type=float, default=20, help="pictures of a hundred that may differ for hard activations")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.run:
            good = from_run(options, folder)
        else:
            data = pictures(folder, np.random.default_rng(1))
            cases = [(preset, activation) for preset in RECIPES for activation in ("relu", "sign", "qrelu:3")]
            good = all([from_torch(preset, activation, data["cifar" if preset in CIFAR else "imagenet"],
                                   folder, options) for preset, activation in cases])
    sys.exit(not good)


if __name__ == "__main__":
    main()
