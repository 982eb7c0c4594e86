"""Stands in for `python -m pip download`: does in turn what each line of the plan file says.

Usage: fake_pip.py FOLDER download … --dest DEST REQUIREMENT. FOLDER holds `plan`, the `wheel` to deliver,
and gets `calls`, one line a call with the process id.
"""

import os
import sys
import time
from pathlib import Path

OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError': /simple/x/\n"
    "ERROR: Could not find a version that satisfies the requirement tiny==1.0 (from versions: none)\n"
    "ERROR: No matching distribution found for tiny==1.0"
)
ABSENT = "ERROR: No matching distribution found for tiny==1.0"
FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"


def main() -> None:
    home, dest = Path(sys.argv[1]), Path(sys.argv[sys.argv.index("--dest") + 1])
    with (home / "calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    number = len((home / "calls").read_text().splitlines())
    plan = (home / "plan").read_text().split()
    act = plan[min(number, len(plan)) - 1]
    wheel = (home / "wheel").read_bytes()
    arriving = Path(os.environ["TMPDIR"]) / "pip-unpack" / "tiny-1.0-py3-none-any.whl"
    arriving.parent.mkdir()
    failures = {"offline": OFFLINE, "absent": ABSENT, "full": FULL, "silent": ""}
    if act in failures:
        print(failures[act])
        sys.exit(1)
    if act in ("cut", "hang", "truncated"):
        arriving.write_bytes(wheel[: len(wheel) // 2])
        time.sleep(600 if act == "hang" else 0.3)
        if act == "cut":
            print("ERROR: ('Connection broken: IncompleteRead(5 bytes read)')", file=sys.stderr)
            sys.exit(1)
    elif act == "damaged":
        arriving.write_bytes(b"!" + wheel[1:])
    else:
        arriving.write_bytes(wheel)
    if act == "slow":
        time.sleep(0.5)
    arriving.rename(dest / arriving.name)


main()
