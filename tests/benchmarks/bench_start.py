"""How long a user waits: importing the library, reading the help, seeing the first token.

Run as a program: `python tests/benchmarks/bench_start.py`. Each line is the best and the median of several
fresh processes, beside those of a Python that does nothing.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 7
COMMANDS = {
    "python": ("-c", "pass"),
    "import colibri": ("-c", "import colibri"),
    "colibri --help": ("-m", "colibri", "--help"),
    "colibri families": ("-m", "colibri", "families"),
}
FIRST_TOKEN = ("-m", "colibri", "run", "--temp", "0", "--max-tokens", "8", "Count to ten.")


def seconds(arguments: tuple[str, ...]) -> float:
    """From the start of a fresh process to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


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
    measured: dict[str, list[float]] = {name: [] for name in (*COMMANDS, "first token")}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            measured[name].append(seconds(arguments))
        measured["first token"].append(first_token_seconds())
    for name, times in measured.items():
        print(f"{name:<18} best {min(times) * 1e3:6.0f} ms  median {statistics.median(times) * 1e3:6.0f} ms")


if __name__ == "__main__":
    main()
