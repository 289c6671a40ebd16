#!/usr/bin/env python3
"""Times ONNX Runtime on one model, as a program of its own: its threads spin on after a call and must not disturb others.

    benches/ort_infer.py MODEL.onnx --batch 64 --threads 2 --seconds 0.4 [--images FILE.npy]

Prints JSON: the median time of a call. With --labels it instead classifies every image and prints the accuracy.
"""
import argparse
import json
import time

import numpy as np
import onnxruntime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--images", required=True, help="normalised pictures, channels first, as .npy")
    parser.add_argument("--labels", help="their classes, as .npy")
    a = parser.parse_args()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = a.threads
    session = onnxruntime.InferenceSession(a.model, options, providers=["CPUExecutionProvider"])
    images = np.load(a.images, mmap_mode="r")
    report = {"peer": f"ONNX Runtime {onnxruntime.__version__}"}
    if a.labels:
        labels = np.load(a.labels)
        parts = [np.ascontiguousarray(images[i : i + a.batch]) for i in range(0, len(images), a.batch)]
        found = np.concatenate([session.run(["logits"], {"input": part})[0].argmax(1) for part in parts])
        report["top1"] = float((found == labels).mean())
    else:
        inputs = {"input": np.ascontiguousarray(images[: a.batch])}
        for _ in range(3):
            session.run(["logits"], inputs)
        times = []
        end = time.perf_counter() + a.seconds
        while len(times) < 5 or time.perf_counter() < end:
            begin = time.perf_counter()
            session.run(["logits"], inputs)
            times.append(time.perf_counter() - begin)
        times.sort()
        report["ms_per_step"] = times[len(times) // 2] * 1e3
    print(json.dumps(report))


if __name__ == "__main__":
    main()
