"""What the processor calls itself, for the headings of comparisons."""
import platform


def cpu_name():
    try:
        names = [line for line in open("/proc/cpuinfo") if line.startswith("model name")]
        return names[0].split(":", 1)[1].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
