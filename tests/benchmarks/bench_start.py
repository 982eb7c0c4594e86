"""How long a user waits: importing the library, reading the help, seeing the first token.

Run as a program: `python tests/benchmarks/bench_start.py`. Each line is the best and the median of several
fresh processes, beside those of a Python that does nothing, and the least processor time that one of them
took, which a busy machine changes least.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

ROUNDS = 7
COMMANDS = {
    "python": ("-c", "pass"),
    "import colibri": ("-c", "import colibri"),
    "colibri --help": ("-m", "colibri", "--help"),
    "colibri families": ("-m", "colibri", "families"),
}
FIRST_TOKEN = ("-m", "colibri", "run", "--temp", "0", "--max-tokens", "8", "Count to ten.")


@contextmanager
def measured(into: list[tuple[float, float]]) -> Iterator[None]:
    """Note the wall time of the block, and the processor time of the children that ended in it."""
    start, used = time.perf_counter(), os.times()
    yield
    now = os.times()
    processor = now.children_user + now.children_system - used.children_user - used.children_system
    into.append((time.perf_counter() - start, processor))


def first_token_seconds() -> float:
    """From the start of a fresh process to the first character of the reply."""
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, *FIRST_TOKEN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        taken = time.perf_counter() - start
        process.stdout.read()
    assert process.returncode == 0
    return taken


def main() -> None:
    """Measure in turn, so that a busy moment of the machine touches every line alike."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in (*COMMANDS, "first token")}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            with measured(times[name]):
                subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        whole: list[tuple[float, float]] = []
        with measured(whole):
            first = first_token_seconds()
        times["first token"].append((first, whole[0][1]))
    for name, pairs in times.items():
        wall = [seconds for seconds, _ in pairs]
        print(
            f"{name:<18} best {min(wall) * 1e3:6.0f} ms   median {statistics.median(wall) * 1e3:6.0f} ms"
            f"   processor {min(processor for _, processor in pairs) * 1e3:6.0f} ms"
        )


if __name__ == "__main__":
    main()
