"""Holds ftprop's ONNX export to ONNX Runtime, over a whole test set.

    python benches/check_onnx.py target/release/ftprop runs/digits [--data PATH]
    python benches/check_onnx.py target/release/ftprop digits.ftp --source digits

Exports the run or the packed model, runs every test picture through ONNX Runtime, and compares the class and the logits
with those that `ftprop eval --save` wrote. Exits with 1 if a class differs or a logit is further away than --tolerance.

A hard unit whose sum lies within float rounding of its threshold may fall on either side in another program, which sums
in another order, and then logits jump. --allow says for how many pictures that is accepted. The ONNX of a packed model
sums integers, exactly in any order, and needs no such allowance.

Needs numpy and onnxruntime (pip install numpy onnxruntime); with onnx, its checker looks at the file, too.
"""
import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

try:
    import onnx
except ImportError:
    onnx = None

DTYPES = {"F32": np.float32, "I64": np.int64}


def read_safetensors(path):
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[first:last], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the ftprop to run")
    parser.add_argument("run", help="a run folder, a checkpoint file or a packed model")
    parser.add_argument("--source", help="the kind of data, for a packed model")
    parser.add_argument("--data", help="where the data is, if not where it was in training")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="how far a logit may be away")
    parser.add_argument("--allow", type=int, default=0, help="pictures that may differ")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, record = f"{folder}/model.onnx", f"{folder}/record.safetensors"
        subprocess.run([options.program, "export", options.run, "-o", model, "--format", "onnx"], check=True)
        data = ["--data", options.data] if options.data else []
        data += ["--source", options.source] if options.source else []
        subprocess.run([options.program, "eval", options.run, "--save", record, *data], check=True)
        if onnx is not None:
            onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        tensors = read_safetensors(record)
    images, labels, expected = tensors["images"], tensors["labels"], tensors["logits"]
    images = images.transpose(0, 3, 1, 2)
    if len(session.get_inputs()[0].shape) == 2:
        images = images.reshape(len(images), -1)
    batches = [np.ascontiguousarray(images[i : i + 64]) for i in range(0, len(images), 64)]
    logits = np.concatenate([session.run(["logits"], {"input": batch})[0] for batch in batches])

    other = int((logits.argmax(1) != expected.argmax(1)).sum())
    distance = np.abs(logits - expected).max(1)
    far = int((distance > options.tolerance).sum())
    print(f"ONNX Runtime {onnxruntime.__version__}: accuracy {np.mean(logits.argmax(1) == labels):.4f}, "
          f"ftprop {np.mean(expected.argmax(1) == labels):.4f}, over {len(labels)} examples")
    print(f"another class on {other}; a logit further than {options.tolerance:g} away on {far}; "
          f"largest distance {distance.max():.3g}, median {np.median(distance):.3g}")
    sys.exit(max(other, far) > options.allow)


if __name__ == "__main__":
    main()
