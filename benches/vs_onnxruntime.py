#!/usr/bin/env python3
"""Inference on the CPU: ftprop's packed and float networks against ONNX Runtime, alternating on the same machine.

    benches/vs_onnxruntime.py --python PYTHON --work FOLDER prepare NAME=RUN...    export, quantize, accuracies
    benches/vs_onnxruntime.py --python PYTHON --work FOLDER measure [NAME...]      times; may be called in parts
    benches/vs_onnxruntime.py --python PYTHON --work FOLDER table                  what was measured, as Markdown

PYTHON has onnxruntime, onnx and numpy. A RUN is a run folder whose data is where it was in training, or under --data.
ONNX Runtime gets the float network as `ftprop export --format onnx` writes it, and its own static quantization of that
to int8: per channel, calibrated on training pictures, in both of its formats, of which the faster one counts.

Each alternation runs every program once, one after the other, each as a process of its own that has ended before
the next begins. A ratio is taken within an alternation; the table has the median of the ratios and their spread.
With --avx2 AVX-512 is hidden from ONNX Runtime (benches/hide_avx512.py), and ftprop is told to use its kernels for AVX2.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from cpu_name import cpu_name
from hide_avx512 import hidden

HERE = Path(__file__).resolve().parent
# Batch and threads.
CASES = [(1, 1), (1, 2), (64, 1), (64, 2)]
INT8 = {"int8 QDQ": "qdq.onnx", "int8 QOperator": "qoperator.onnx"}


def run(command, **settings):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env={**os.environ, **settings})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def quiet(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


# Runs where onnxruntime is: pictures for the other programs, and ONNX Runtime's own quantization.
QUANTIZE = """
import json, struct, sys
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

folder, calibration, test = sys.argv[1:]

def record(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    def tensor(name, kind):
        first, last = header[name]["data_offsets"]
        return np.frombuffer(data[8 + size + first:8 + size + last], kind).reshape(header[name]["shape"])
    return tensor("images", np.float32).transpose(0, 3, 1, 2), tensor("labels", np.int64)

images, labels = record(test)
np.save(folder + "/images.npy", np.ascontiguousarray(images))
np.save(folder + "/labels.npy", labels)
images, _ = record(calibration)
# Every hundredth picture of the training part, so that all classes come.
images = np.ascontiguousarray(images[::100])

class Reader(CalibrationDataReader):
    def __init__(self):
        self.parts = iter([images[i:i + 50] for i in range(0, len(images), 50)])
    def get_next(self):
        part = next(self.parts, None)
        return None if part is None else {"input": part}

quant_pre_process(folder + "/float.onnx", folder + "/prepared.onnx")
for name, form in [("qdq", QuantFormat.QDQ), ("qoperator", QuantFormat.QOperator)]:
    quantize_static(folder + "/prepared.onnx", folder + "/" + name + ".onnx", Reader(), quant_format=form,
                    per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
print(json.dumps(len(images)))
"""


def prepare(name, source, a):
    folder = a.work / name
    folder.mkdir(parents=True, exist_ok=True)
    data = ["--data", a.data] if a.data else []
    check = ["--check", a.data] if a.data else ["--check"]
    report = {"packed": {}}
    for weights in ("int8", "int4", "f32"):
        made = run([a.ftprop, "export", source, "-o", folder / f"{weights}.ftp", "--weights", weights, *check, "--json"])
        report["packed"][weights] = {"bytes": made["bytes"], **made["check"]}
    quiet([a.ftprop, "export", source, "-o", folder / "float.onnx", "--format", "onnx"])
    quiet([a.ftprop, "export", source, "-o", folder / "float.safetensors", "--format", "torch"])
    run([a.ftprop, "eval", source, *data, "--save", folder / "test.safetensors", "--json"])
    run([a.ftprop, "eval", source, *data, "--split", "train", "--save", folder / "train.safetensors", "--json"])
    parts = [folder / "train.safetensors", folder / "test.safetensors"]
    done = subprocess.run([a.python, "-c", QUANTIZE, folder, *parts], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"quantizing {name} failed:\n{done.stderr}")
    for part in parts:
        part.unlink()
    pictures = ["--images", folder / "images.npy", "--labels", folder / "labels.npy"]
    for kind, file in {"float32": "float.onnx", **INT8}.items():
        found = run([a.python, HERE / "ort_infer.py", folder / file, *pictures])
        report[kind] = {"top1": found["top1"], "bytes": (folder / file).stat().st_size}
    report["safetensors"] = (folder / "float.safetensors").stat().st_size
    report["run"] = str(Path(source).resolve())
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    int8 = report["packed"]["int8"]
    print(f"{name}: float {int8['float_top1']:.4f}, packed int8 {int8['packed_top1']:.4f}, "
          + ", ".join(f"ONNX Runtime {kind} {report[kind]['top1']:.4f}" for kind in ("float32", *INT8)), flush=True)


def measure(name, a):
    folder = a.work / name
    source = json.loads((folder / "report.json").read_text())["run"]
    environment = hidden(a.python, "onnxruntime", a.work / "hidden") if a.avx2 else {}
    cases = [(b, t) for b, t in CASES if b in a.batch and t in a.threads]
    for batch, threads in cases:
        common = ["--batch", str(batch), "--threads", str(threads)]

        def ours(model, **settings):
            bench = [a.ftprop, "bench", "infer", model, *common, "--json"]
            once = run([*bench, "--steps", "3"], **settings)["ms_per_step"]
            steps = str(max(5, int(a.seconds * 1e3 / once)))
            return run([*bench, "--steps", steps], **settings)

        def theirs(file):
            settings = ["--seconds", str(a.seconds), "--images", folder / "images.npy"]
            return run([a.python, HERE / "ort_infer.py", folder / file, *common, *settings], **environment)

        rounds = []
        for number in range(a.alternations):
            times = {"float32": theirs("float.onnx"), "packed AVX2": ours(folder / "int8.ftp", FTPROP_KERNELS="avx2")}
            times |= {kind: theirs(file) for kind, file in INT8.items()}
            if not a.avx2:
                best = ours(folder / "int8.ftp")
                times |= {"packed": best, "float": ours(source)}
            rounds.append({kind: found["ms_per_step"] for kind, found in times.items()})
            print(f"{name} batch {batch}, threads {threads}, {number + 1}: "
                  + ", ".join(f"{kind} {ms:.3f}" for kind, ms in rounds[-1].items()), file=sys.stderr, flush=True)
        record = {"peer": times["float32"]["peer"], "isa": (best if not a.avx2 else times["packed AVX2"])["isa"],
                  "rounds": rounds}
        kind = "avx2" if a.avx2 else "full"
        (folder / f"{kind}-{batch}-{threads}.json").write_text(json.dumps(record))


def ratio(rounds, theirs, ours):
    """ONNX Runtime's time over ours, within each alternation."""
    ratios = sorted(min(r[kind] for kind in theirs) / r[ours] for r in rounds)
    return f"{statistics.median(ratios):.2f}× ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def table(a):
    names = a.names or sorted(folder.name for folder in a.work.iterdir() if (folder / "report.json").exists())
    reports = {name: json.loads((a.work / name / "report.json").read_text()) for name in names}
    found = {(name, kind, case): json.loads(path.read_text()) for name in names for kind in ("full", "avx2")
             for case in CASES if (path := a.work / name / f"{kind}-{case[0]}-{case[1]}.json").exists()}
    if not found:
        sys.exit("nothing was measured yet")
    some = next(iter(found.values()))
    peer, isa = some["peer"], next((f["isa"] for (_, kind, _), f in found.items() if kind == "full"), some["isa"])
    print("# Inference on the CPU, against ONNX Runtime\n")
    print(f"{cpu_name()}, {os.cpu_count()} cores; {peer}; {datetime.date.today()}. Made by "
          f"`benches/vs_onnxruntime.py`: {len(some['rounds'])} alternations, median of the ratios and their spread. "
          "Times are medians in ms a batch. Packed models have int8 weights. ONNX Runtime's int8 is its own static "
          "quantization, the faster of QDQ and QOperator in each alternation.\n")
    int8 = tuple(INT8)

    def rows(kind, ours, extra):
        print("| network | batch, threads | ORT float32 | ORT int8 | " + " | ".join(extra) + " | "
              + " | ".join(f"{label} against float32 | against int8" for label, _ in ours) + " |")
        print("| --- " * (4 + len(extra) + 2 * len(ours)) + "|")
        for name in names:
            for case in CASES:
                if (name, kind, case) in found:
                    rounds = found[name, kind, case]["rounds"]
                    median = lambda kinds: f"{statistics.median(min(r[k] for k in kinds) for r in rounds):.3f}"
                    cells = [name, f"{case[0]}, {case[1]}", median(["float32"]), median(int8)]
                    cells += [median([column]) for column in extra.values()]
                    for _, column in ours:
                        cells += [ratio(rounds, ["float32"], column), ratio(rounds, int8, column)]
                    print("| " + " | ".join(cells) + " |")
        print()

    if any(kind == "avx2" for _, kind, _ in found):
        print("## Both with AVX2\n\nThe machine has AVX-512; here it is hidden from ONNX Runtime "
              "(`benches/hide_avx512.py`), and ftprop uses its kernels for AVX2, as on a CPU that has nothing newer.\n")
        rows("avx2", [("packed", "packed AVX2")], {"packed": "packed AVX2"})
    if any(kind == "full" for _, kind, _ in found):
        print(f"## The machine as it is\n\nONNX Runtime with all it finds (AVX-512, VNNI); ftprop with its kernels for "
              f"{isa}, and with those for AVX2 all the same.\n")
        rows("full", [("packed", "packed"), ("packed AVX2", "packed AVX2")],
             {"ftprop float": "float", "packed": "packed", "packed AVX2": "packed AVX2"})
    print("## Accuracy and size\n\nOn the whole test set.\n")
    print("| network | float | packed int8 | same class | packed int4 | packed f32 | ORT float32 | ORT int8 QDQ, QOperator | "
          "int8 file | against float safetensors | ORT int8 file |")
    print("| --- " * 11 + "|")
    percent = lambda share: f"{100 * share:.2f} %"
    for name, r in reports.items():
        packed = r["packed"]
        print("| " + " | ".join([
            name, percent(packed["int8"]["float_top1"]), percent(packed["int8"]["packed_top1"]),
            percent(packed["int8"]["agreement"]), percent(packed["int4"]["packed_top1"]),
            percent(packed["f32"]["packed_top1"]), percent(r["float32"]["top1"]),
            ", ".join(percent(r[kind]["top1"]) for kind in INT8), f"{packed['int8']['bytes']:,} bytes",
            f"{packed['int8']['bytes'] / r['safetensors']:.3f}×", f"{min(r[k]['bytes'] for k in INT8):,} bytes"]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "measure", "table"])
    parser.add_argument("names", nargs="*", help="NAME=RUN for prepare, else NAME; all if none")
    parser.add_argument("--ftprop", default="target/release/ftprop")
    parser.add_argument("--python", default=sys.executable, help="one with onnxruntime")
    parser.add_argument("--work", type=Path, required=True, help="where models and times are kept")
    parser.add_argument("--data", help="where the data is, if not where it was in training")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each program in each alternation")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--avx2", action="store_true", help="hide AVX-512 from all programs")
    a = parser.parse_args()
    if a.what == "prepare":
        for pair in a.names:
            name, _, source = pair.partition("=")
            prepare(name, source, a)
    elif a.what == "measure":
        for name in a.names or sorted(p.parent.name for p in a.work.glob("*/report.json")):
            measure(name, a)
    else:
        table(a)


if __name__ == "__main__":
    main()
