#!/usr/bin/env python3
"""Makes a Python package believe that the CPU has AVX2 and nothing newer, so that programs which choose their kernels by
CPUID can be compared as on such a CPU.

    benches/hide_avx512.py PYTHON PACKAGE FOLDER

copies the package that PYTHON has to FOLDER, with every CPUID instruction of its libraries replaced by an undefined one
of the same length, and builds hide_avx512.c there, which answers those. Prints the environment to run with:

    env $(benches/hide_avx512.py python3 onnxruntime hidden) python3 PROGRAM.py

Works where an operating system's own way (CPUID faulting) does not: on AMD, and in virtual machines. Needs cc and
objdump; Linux on x86-64.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

CPUID, UD0 = b"\x0f\xa2", b"\x0f\xff"


def text_section(library):
    """Address, place in the file and length of the instructions."""
    listed = subprocess.run(["objdump", "-h", "-j", ".text", library], capture_output=True, text=True, check=True).stdout
    size, address, _, place = re.search(r"\.text\s+(\w+)\s+(\w+)\s+(\w+)\s+(\w+)", listed).groups()
    return int(address, 16), int(place, 16), int(size, 16)


def replace(library):
    """Replaces every CPUID and says how many there were."""
    address, place, size = text_section(library)
    found = subprocess.Popen(["objdump", "-d", "-j", ".text", library], stdout=subprocess.PIPE, text=True)
    places = [int(line.split(":")[0], 16) - address + place for line in found.stdout if line.rstrip().endswith("cpuid")]
    if found.wait() != 0:
        sys.exit(f"objdump cannot read {library}")
    data = bytearray(library.read_bytes())
    for at in places:
        assert data[at : at + 2] == CPUID and place <= at < place + size
        data[at : at + 2] = UD0
    library.write_bytes(data)
    return len(places)


def hidden(python, package, folder):
    """The environment in which the package sees AVX2 only; made once."""
    folder = Path(folder).resolve()
    handler = folder / "hide_avx512.so"
    if not handler.exists():
        where = [python, "-c", f"import {package}; print({package}.__path__[0])"]
        source = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
        shutil.rmtree(folder / package, ignore_errors=True)
        shutil.copytree(source, folder / package)
        libraries = [path for path in (folder / package).rglob("*.so*") if path.is_file()]
        if sum(replace(library) for library in libraries) == 0:
            sys.exit(f"{package} has no CPUID to replace")
        code = Path(__file__).resolve().parent / "hide_avx512.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", handler, code], check=True)
    return {"LD_PRELOAD": str(handler), "PYTHONPATH": str(folder)}


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(*(f"{name}={value}" for name, value in hidden(*sys.argv[1:]).items()))
