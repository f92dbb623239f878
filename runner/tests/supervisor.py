"""A supervisor for tests. It follows the protocol of `step kernel`, which runner/README.md describes."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

GRACE = float(os.environ.get("SUPERVISOR_GRACE", "10"))


def main(link: Path) -> int:
    time.sleep(float(os.environ.get("SUPERVISOR_DELAY", "0")))
    lock = (link / "supervisor.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    while not (link / "connection.json").exists():
        if (link / "stop").exists():
            return 0
        time.sleep(0.02)
    name = json.loads((link / "connection.json").read_text())["kernel_name"]
    if name not in ("", "python3", "replay"):
        missing = {"name": name, "searched": ["/usr/share/jupyter/kernels"], "found": ["python3"]}
        write(link, {"notFound": missing})
        return 1
    module = ["tests.replay_kernel"] if name == "replay" else ["ipykernel_launcher", "-f"]
    command = [sys.executable, "-m", *module, str(link / "connection.json")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as kernel:
        asked: float | None = None
        while kernel.poll() is None:
            if asked is None and ((link / "stop").exists() or has_lost_its_runner(link)):
                asked = time.monotonic()
            if asked is not None and time.monotonic() - asked > GRACE:
                kernel.kill()
            time.sleep(0.01)
        code = kernel.returncode
    requested = (link / "stop").exists()
    kills = int(os.environ.get("SUPERVISOR_OOM_KILLS", "0"))
    record = {"code": max(code, 0), "signal": -code if code < 0 else None, "oomKills": kills, "requested": requested}
    write(link, record)
    return 0 if requested else 1


def has_lost_its_runner(link: Path) -> bool:
    with (link / "runner.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def write(link: Path, record: dict[str, object]) -> None:
    temporary = link / ".exit.json.new"
    temporary.write_text(json.dumps(record))
    temporary.rename(link / "exit.json")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
