#!/usr/bin/env python3
"""PyTorch's side of the comparisons: the time of a training step of the paper's networks on a CPU or a GPU.

    torch_train.py --network convnet4|convnet8|bireal18|alexnet|resnet18 [--activation sign|qrelu:3|relu] [--batch 64]
                   [--threads 2] [--steps 20] [--layout channels_last|contiguous]
                   [--device cpu|cuda] [--mode eager|graph|compile] [--precision f32|tf32|bf16]

Prints one line of JSON with the median milliseconds a step (forward, cross entropy, backward, Adam), images a
second and the process's peak memory. On a GPU the median is that of seven rounds of so many steps; `graph` replays a step
as one CUDA graph, `compile` does the same with torch.compile's kernels in it. Needs torch.
"""
import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn


class SoftHinge(torch.autograd.Function):
    """Hard activation whose slope is that of the soft hinge at the target: g (1 - tanh^2)."""

    @staticmethod
    def forward(ctx, z, k):
        ctx.save_for_backward(z)
        ctx.k = k
        if k == 0:
            return torch.where(z > 0, 1.0, -1.0)
        return (z * (k - 1)).ceil().clamp(0, k) / k

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        m = z if ctx.k == 0 else 2 * z - 1
        return g * (1 - torch.tanh(m) ** 2), None


class Act(nn.Module):
    def __init__(self, name, plain=False):
        super().__init__()
        self.name = name
        self.k = int(name.split(":")[1]) if name.startswith("qrelu:") else 0
        # Without a function of its own for the way back, which a compiler fuses best.
        self.plain = plain

    def forward(self, z):
        if self.name == "relu":
            return F.relu(z)
        if not self.plain:
            return SoftHinge.apply(z, self.k)
        if self.k == 0:
            soft, hard = torch.tanh(z), torch.where(z > 0, 1.0, -1.0)
        else:
            soft, hard = 0.5 * (1 + torch.tanh(2 * z - 1)), (z * (self.k - 1)).ceil().clamp(0, self.k) / self.k
        return soft + (hard.to(soft.dtype) - soft).detach()


def convnet4(act):
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=3), nn.MaxPool2d(2), act(),
        nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), act(),
        nn.Flatten(), nn.Linear(64 * 8 * 8, 1024), act(), nn.Linear(1024, 10))


def normed(inputs, outputs, kernel, padding=0):
    return nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False), nn.BatchNorm2d(outputs, eps=1e-4)


def convnet8(act):
    # Without the dropout, which costs ftprop a little and PyTorch nothing here.
    return nn.Sequential(
        nn.Conv2d(3, 48, 5, padding=2), nn.MaxPool2d(2), act(),
        *normed(48, 64, 3, 1), act(), *normed(64, 64, 3, 1), nn.MaxPool2d(2), act(),
        *normed(64, 128, 3), act(), *normed(128, 128, 3, 1), act(), *normed(128, 128, 3), act(),
        *normed(128, 512, 4), act(), nn.Flatten(), nn.Linear(512, 10))


def alexnet(act):
    fc = lambda i, o: (nn.Linear(i, o, bias=False), nn.BatchNorm1d(o, eps=1e-4))
    return nn.Sequential(
        nn.Conv2d(3, 96, 12, stride=4, bias=False), act(),
        *normed(96, 256, 5, 2), nn.MaxPool2d(3, 2, 1), act(), *normed(256, 384, 3, 1), nn.MaxPool2d(3, 2), act(),
        *normed(384, 384, 3, 1), act(), *normed(384, 256, 3, 1), nn.MaxPool2d(3, 2), act(),
        nn.Flatten(), *fc(9216, 4096), act(), *fc(4096, 4096), act(), nn.Linear(4096, 1000))


class Block(nn.Module):
    def __init__(self, act, inputs, outputs, stride):
        super().__init__()
        conv = lambda i, o, k, s, p: (nn.Conv2d(i, o, k, s, p, bias=False), nn.BatchNorm2d(o))
        self.main = nn.Sequential(*conv(inputs, outputs, 3, stride, 1), act(), *conv(outputs, outputs, 3, 1, 1))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv(inputs, outputs, 1, stride, 0))
        self.act = act()

    def forward(self, x):
        return self.act(self.main(x) + self.shortcut(x))


def resnet18(act):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), act(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        for block in range(2):
            layers.append(Block(act, inputs, outputs, 2 if block == 0 and outputs > 64 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(512, 1000))


class Around(nn.Module):
    """Activation, convolution and norm with a way around them, which is averaged and projected where it shrinks."""

    def __init__(self, act, inputs, outputs):
        super().__init__()
        shrinks = inputs != outputs
        conv = lambda k, s, p: (nn.Conv2d(inputs, outputs, k, s, p, bias=False), nn.BatchNorm2d(outputs))
        self.main = nn.Sequential(act(), *conv(3, 2 if shrinks else 1, 1))
        self.around = nn.Sequential(nn.AvgPool2d(2), *conv(1, 1, 0)) if shrinks else nn.Identity()

    def forward(self, x):
        return self.main(x) + self.around(x)


def bireal18(act):
    layers, inputs = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)], 64
    for outputs in (64, 128, 256, 512):
        for _ in range(4):
            layers.append(Around(act, inputs, outputs))
            inputs = outputs
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))


def time_cpu(step, steps):
    times = []
    for number in range(steps + 3):
        started = time.perf_counter()
        step()
        if number >= 3:
            times.append(time.perf_counter() - started)
    return times


def time_gpu(step, captured, steps):
    if captured:
        # As PyTorch's documentation has it: a few steps on another stream first, then the capture.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        step = graph.replay
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        started = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) / steps)
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="convnet4", choices=("convnet4", "convnet8", "bireal18", "alexnet", "resnet18"))
    parser.add_argument("--activation", default="sign")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layout", default="channels_last", choices=("channels_last", "contiguous"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--mode", default="eager", choices=("eager", "graph", "compile"))
    parser.add_argument("--precision", default="f32", choices=("f32", "tf32", "bf16"))
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = a.precision == "tf32"
    side, classes = (224, 1000) if a.network in ("alexnet", "resnet18") else (32, 10)
    model = globals()[a.network](lambda: Act(a.activation, plain=a.mode == "compile")).to(a.device)
    x = torch.randn(a.batch, 3, side, side, device=a.device)
    y = torch.randint(0, classes, (a.batch,), device=a.device)
    if a.layout == "channels_last":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if a.mode == "compile":
        model = torch.compile(model)
    captured = a.device == "cuda" and a.mode != "eager"
    optimizer = torch.optim.Adam(
        model.parameters(), lr=2.5e-4, weight_decay=5e-4, capturable=captured, fused=True if captured else None)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(a.device, torch.bfloat16, enabled=a.precision == "bf16"):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    times = time_gpu(step, captured, a.steps) if a.device == "cuda" else time_cpu(step, a.steps)
    median = sorted(times)[len(times) // 2]
    print(json.dumps({
        "peer": "torch " + torch.__version__, "network": a.network, "activation": a.activation, "batch": a.batch,
        "threads": a.threads, "layout": a.layout, "device": a.device, "mode": a.mode, "precision": a.precision,
         "ms_per_step": median * 1e3, "images_per_s": a.batch / median,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
