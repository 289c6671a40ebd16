#!/usr/bin/env python3
"""Whole runs on a GPU, in software or not, beside the same runs on the CPU: the losses of every epoch are to agree to six
digits, a run that was interrupted and resumed is to end with the bytes of one left alone, and so are two that share a GPU.

usage: emulated_runs.py FTPROP [DEVICE]    (.ci/emulate sets the GPU in software up)
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

PROGRAM, DEVICE = sys.argv[1], (sys.argv[2:] + ["cuda:0"])[0]

# Sign units everywhere, with a mean over the image before the last layer, so that it may have any size.
NETWORK = """
[[network.layers]]
kind = "conv"
out = 16
kernel = 3
stride = 2
pad = 1
[[network.layers]]
kind = "batch_norm"
[[network.layers]]
kind = "act"
[[network.layers]]
kind = "residual"
main = [{ kind = "conv", out = 16, kernel = 3, pad = 1 }, { kind = "batch_norm" }]
[[network.layers]]
kind = "act"
[[network.layers]]
kind = "avg_pool"
[[network.layers]]
kind = "fc"
"""

# name -> where examples come from, what is set, how many epochs. Seeds are such that no unit is so near a threshold that the last
# bits of a picture decide, which are not the same on both.
RUNS = {
    "sizes by epoch": ("pictures.ftpictures", "data.area=[0.3,1.0] data.flip=true data.sizes=[[1,16],[2,20],[3,24]]", 3),
    "streamed": ("pictures.ftpictures", "data.area=[0.3,1.0] data.flip=true data.on_device=false data.brightness=0.3 "
                 "train.seed=2", 2),
    "a folder": ("pictures", "data.resize=26 data.crop=24 data.area=[0.5,1.0] data.contrast=0.2 data.saturation=0.3", 2),
    "TrivialAugment": ("pictures.ftpictures", "data.trivial_augment=true data.cutout=5", 2),
    "mixup": ("pictures.ftpictures", "train.mixup=0.4 train.cutmix=1.0 train.label_smoothing=0.1", 2),
    "weights of classes": ("pictures.ftpictures", "train.class_weights=[1.0,0.5,2.0] train.ema=0.9 train.clip=0.5", 2),
    "steps of three batches": ("pictures.ftpictures", "train.accumulate=3", 2),
    "a teacher and mixup": ("pictures.ftpictures", "train.teacher=teacher train.teacher_weight=0.7 train.mixup=0.3", 2),
    "a rule for whole batches": ("pictures.ftpictures", "target_rule=class_mean", 2),
    "AdamW and plateau": ("pictures.ftpictures", "optimizer.name=adamw optimizer.lr=0.01 schedule.kind=plateau "
                          "schedule.patience=1 data.validation=8", 3),
}


def picture(path, kind, number):
    """An uncompressed picture: stripes of a class, and noise that is a function of its number."""
    width, height, state, rows = 26 + number % 5, 30, 7919 * (number + 1), []
    for y in range(height):
        row = bytearray()
        for x in range(width):
            stripe = 90 * ((x if kind == 0 else y if kind == 1 else x + y) // 4 % 2)
            for channel in range(3):
                state = (state * 1103515245 + 12345) % (1 << 31)
                row.append(40 + stripe + 20 * (channel == kind) + (state >> 16) % 60)
        rows.append(bytes(row) + bytes(-len(row) % 4))
    body = b"".join(rows)
    head = struct.pack("<2sIHHI", b"BM", 54 + len(body), 0, 0, 54)
    path.write_bytes(head + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(body), 2835, 2835, 0, 0) + body)


def ftprop(folder, *arguments):
    done = subprocess.run([PROGRAM, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ftprop {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def train(folder, out, device, data, settings, epochs):
    # Deterministic: products are not chosen by timing, so that every time the same units are near their thresholds.
    sets = [part for setting in f"train.deterministic=true {settings}".split() for part in ("--set", setting)]
    ftprop(folder, "train", "--recipe", "recipe.toml", "--data", data, "--device", device, "--out", out, "--quiet",
           "--set", f"train.epochs={epochs}", *sets)
    return [json.loads(line) for line in (folder / out / "metrics.jsonl").read_text().splitlines()]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part, count in ("train", 14), ("val", 4):
            for kind in range(3):
                place = folder / "pictures" / part / f"class{kind}"
                place.mkdir(parents=True)
                for number in range(count):
                    picture(place / f"{number}.bmp", kind, 100 * (part == "val") + 20 * kind + number)
        ftprop(folder, "prepare", "pictures", "-o", "pictures.ftpictures", "--resize", "28")
        (folder / "recipe.toml").write_text('name = "run"\nactivation = "sign"\nlayer_loss = "soft_hinge"\n' + NETWORK
                                            + '[train]\nbatch = 8\nprecision = "f32"\n')
        train(folder, "teacher", "cpu", "pictures.ftpictures", "activation=relu", 2)
        failed = 0
        for number, (what, (data, settings, epochs)) in enumerate(RUNS.items()):
            one, other = (train(folder, f"{device.split(':')[0]}-{number}", device, data, settings, epochs)
                          for device in ("cpu", DEVICE))
            losses = [(a[part]["loss"], b[part]["loss"]) for a, b in zip(one, other) for part in ("train", "test")]
            apart = max(abs(a - b) / abs(a) for a, b in losses)
            right = len(one) == len(other) == epochs and apart < 1e-6
            failed += not right
            print(f"{'ok' if right else 'FAILED':7} {what}: losses of {epochs} epochs {apart:.1e} apart", flush=True)

        # Whole, and in two pieces.
        settings = "schedule.kind=constant train.ema=0.9"
        train(folder, "whole", DEVICE, "pictures.ftpictures", settings, 3)
        train(folder, "pieces", DEVICE, "pictures.ftpictures", settings, 1)
        ftprop(folder, "train", "--resume", "pieces", "--epochs", "3", "--quiet", "--device", DEVICE)
        same = all((folder / "whole" / file).read_bytes() == (folder / "pieces" / file).read_bytes()
                   for file in ("best.safetensors", "checkpoint.safetensors"))
        failed += not same
        print(f"{'ok' if same else 'FAILED':7} a run that was resumed has the bytes of one that was not")

        # Two ranks on one GPU are one.
        alone = train(folder, "alone", DEVICE, "pictures.ftpictures", "train.sync_norm=true", 2)
        ftprop(folder, "train", "--recipe", "recipe.toml", "--data", "pictures.ftpictures", "--devices", f"{DEVICE},{DEVICE}",
               "--exchange", "host", "--out", "both", "--quiet", "--set", "train.epochs=2", "--set", "train.sync_norm=true",
               "--set", "train.deterministic=true")
        both = [json.loads(line) for line in (folder / "both" / "metrics.jsonl").read_text().splitlines()]
        apart = max(abs(a["train"]["loss"] - b["train"]["loss"]) / a["train"]["loss"] for a, b in zip(alone, both))
        failed += not apart < 1e-5
        print(f"{'ok' if apart < 1e-5 else 'FAILED':7} two ranks on one GPU: losses {apart:.1e} from those of one")
        return failed


sys.exit(1 if main() else 0)
