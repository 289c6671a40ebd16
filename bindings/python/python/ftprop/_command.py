"""The command ``ftprop``: the whole program is in the package's compiled half."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the program and gives its exit code."""
    from . import _native

    # Python would only note a Ctrl-C, and nobody would look; the program has its own way with it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.run_command(["ftprop", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
