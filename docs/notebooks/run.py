#!/usr/bin/env python3
"""Runs notebooks from the beginning and fails where a cell does.

usage: run.py [--write] NOTEBOOK...      (--write keeps the outputs in the file, without what differs each time)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main(arguments: list[str]) -> None:
    """Each of them, in a folder of its own."""
    write = "--write" in arguments
    for name in arguments:
        if name == "--write":
            continue
        notebook = nbformat.read(name, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
            client.execute()
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        if not any(cell.outputs for cell in cells):
            raise SystemExit(f"{name}: nothing came out of it")
        if write:
            for cell in cells:
                cell.metadata.pop("execution", None)
                # Bars of progress are for whoever waits.
                cell.outputs = [o for o in cell.outputs if o.output_type != "stream" or o.name != "stderr"]
                cell.outputs = [o for o in cell.outputs if "widget" not in str(o.get("data", {}).keys())]
            notebook.metadata.pop("widgets", None)
            Path(name).write_text(nbformat.writes(notebook) + "\n")
        print(f"{name}: {len(cells)} cells ran")


if __name__ == "__main__":
    main(sys.argv[1:])
