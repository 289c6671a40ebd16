#!/usr/bin/env python3
"""Inference on the CPU: ftprop's packed network against OpenVINO's int8, alternating on the same machine.

    benches/vs_openvino.py prepare RUN --work FOLDER [--data DATA] [--ftprop target/release/ftprop]
    benches/vs_openvino.py measure --work FOLDER [--rounds 7] [--batch 1 64] [--threads 1]
    benches/vs_openvino.py infer MODEL.xml --images FILE.npy --batch 64 --threads 1     (OpenVINO's side; started by measure)

Run it with a Python that has openvino, nncf, onnx and numpy. OpenVINO gets the float network as `ftprop export --format onnx`
writes it, and quantizes it to int8 itself (nncf.quantize, its default of mixed symmetry, calibrated on 300 training
pictures). Each round runs both programs once, each as a process of its own that has ended before the next begins; a ratio
is taken within a round, and the table has the median of the ratios and their spread.
"""
import argparse
import datetime
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from cpu_name import cpu_name


def run(command, as_json=True):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1] if not as_json else done.stdout)


def pictures(path):
    """Images and labels as `ftprop eval --save` writes them, channels first."""
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])

    def tensor(name, kind):
        first, last = header[name]["data_offsets"]
        return np.frombuffer(data[8 + size + first:8 + size + last], kind).reshape(header[name]["shape"])

    return np.ascontiguousarray(tensor("images", np.float32).transpose(0, 3, 1, 2)), tensor("labels", np.int64)


def compiled(model, batch, threads):
    import openvino as ov
    core = ov.Core()
    network = core.read_model(model)
    shape = list(network.input(0).partial_shape)
    network.reshape([batch, *[d.get_length() for d in shape[1:]]])
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    return core.compile_model(network, "CPU", settings), ov.__version__


def prepare(a):
    import nncf
    import openvino as ov
    a.work.mkdir(parents=True, exist_ok=True)
    data = ["--data", a.data] if a.data else []
    subprocess.run([a.ftprop, "export", a.run, "-o", a.work / "packed.ftp"], check=True, capture_output=True)
    subprocess.run([a.ftprop, "export", a.run, "-o", a.work / "float.onnx", "--format", "onnx"], check=True, capture_output=True)
    for split in ("train", "test"):
        saved = a.work / f"{split}.safetensors"
        run([a.ftprop, "eval", a.run, *data, "--split", split, "--save", saved, "--json"])
    images, _ = pictures(a.work / "train.safetensors")
    some = [images[i:i + 1] for i in range(0, len(images), max(1, len(images) // 300))][:300]
    quantized = nncf.quantize(ov.convert_model(a.work / "float.onnx"), nncf.Dataset(some), preset=nncf.QuantizationPreset.MIXED,
                              subset_size=300)
    ov.save_model(quantized, a.work / "int8.xml")
    images, labels = pictures(a.work / "test.safetensors")
    np.save(a.work / "images.npy", images)
    for split in ("train", "test"):
        (a.work / f"{split}.safetensors").unlink()
    network, _ = compiled(a.work / "int8.xml", 100, os.cpu_count())
    found = np.concatenate([network(images[i:i + 100])[0].argmax(1) for i in range(0, len(images) // 100 * 100, 100)])
    packed = run([a.ftprop, "eval", a.work / "packed.ftp", *data, "--json"])
    report = {"openvino_top1": float((found == labels[:len(found)]).mean()), "packed_top1": packed["top1"],
              "packed_bytes": (a.work / "packed.ftp").stat().st_size, "openvino_bytes": (a.work / "int8.bin").stat().st_size}
    (a.work / "report.json").write_text(json.dumps(report))
    print(json.dumps(report))


def infer(a):
    network, version = compiled(a.model, a.batch[0], a.threads)
    request = network.create_infer_request()
    request.set_input_tensor(__import__("openvino").Tensor(np.ascontiguousarray(np.load(a.images, mmap_mode="r")[:a.batch[0]])))
    for _ in range(5):
        request.infer()
    times, end = [], time.perf_counter() + a.seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        request.infer()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"peer": f"OpenVINO {version}", "ms_per_step": statistics.median(times) * 1e3, "least": min(times) * 1e3}))


def measure(a):
    print(f"{cpu_name()}, {os.cpu_count()} cores, {a.threads} thread(s); {datetime.date.today()}; {a.rounds} alternations\n")
    print("| batch | OpenVINO int8, ms | packed, ms | ratio |\n| --- | --- | --- | --- |", flush=True)
    for batch in a.batch:
        common = ["--batch", batch, "--threads", a.threads]
        rounds = []
        for _ in range(a.rounds):
            bench = [a.ftprop, "bench", "infer", a.work / "packed.ftp", *common, "--json", "--steps"]
            once = run([*bench, 3])["ms_per_step"]
            ours = run([*bench, max(5, int(a.seconds * 1e3 / once))])["ms_per_step"]
            theirs = run([sys.executable, __file__, "infer", a.work / "int8.xml", "--images", a.work / "images.npy", *common,
                          "--seconds", a.seconds], as_json=False)
            rounds.append((theirs["ms_per_step"], ours, theirs["peer"]))
            print(f"batch {batch}: OpenVINO {theirs['ms_per_step']:.3f}, packed {ours:.3f}", file=sys.stderr, flush=True)
        ratios = sorted(theirs / ours for theirs, ours, _ in rounds)
        median = lambda column: statistics.median(r[column] for r in rounds)
        print(f"| {batch} | {median(0):.3f} | {median(1):.3f} | {statistics.median(ratios):.2f}× ({ratios[0]:.2f} to "
              f"{ratios[-1]:.2f}) |", flush=True)
    print(f"\n{rounds[-1][2]}; {(a.work / 'report.json').read_text()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    for name, function in [("prepare", prepare), ("measure", measure), ("infer", infer)]:
        part = what.add_parser(name)
        part.set_defaults(function=function)
        if name == "infer":
            part.add_argument("model")
            part.add_argument("--images", required=True, help="normalised pictures, channels first, as .npy")
        else:
            part.add_argument("--work", type=Path, required=True, help="where models are kept")
            part.add_argument("--ftprop", default="target/release/ftprop")
        if name == "prepare":
            part.add_argument("run", help="a run folder")
            part.add_argument("--data", help="where the data is, if not where it was in training")
        else:
            part.add_argument("--batch", type=int, nargs="+", default=[1, 64])
            part.add_argument("--threads", type=int, default=1)
            part.add_argument("--seconds", type=float, default=0.4)
            part.add_argument("--rounds", type=int, default=7)
    a = parser.parse_args()
    a.function(a)


if __name__ == "__main__":
    main()
