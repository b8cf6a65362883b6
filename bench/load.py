"""The load: prepared requests, sent by wrk from the core of this process."""

import json
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

# A request that has no response after this many seconds is an error.
TIMEOUT = 30
# A run stops waiting for responses after this many seconds.
LONGEST = 120
MISSING = "" if shutil.which("wrk") else "wrk sends the load, and is not installed: apt-get install wrk"


@dataclass
class Result:
    """The measurements of a run: latencies in milliseconds, the processor time of the worker in seconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    max: float
    refused: int  # answers with a status of 400 and above
    timeouts: int
    broken: int  # connections that failed
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Return the requests a second."""
        return self.requests / self.seconds


def encode(method: str, path: str, body: object, headers: dict[str, str]) -> bytes:
    """Return the bytes of a request with this JSON body."""
    content = b"" if body is None else json.dumps(body).encode()
    if content:
        headers = headers | {"Content-Type": "application/json", "Content-Length": str(len(content))}
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def run(
    base: str, requests: list[bytes], connections: int, seconds: float = 0, pause_ms: float = 0
) -> Result:
    """Send the requests in order, again and again, for `seconds`.

    If `seconds` is 0, send each request once and wait for all responses. Each connection pauses at random
    before a request, for `pause_ms` on average.
    """
    with NamedTemporaryFile() as file:
        for request in requests:
            file.write(b"%d\n%b" % (len(request), request))
        file.flush()
        # wrk accepts whole seconds only. It checks for SIGINT every 0.1 s, and then stops and prints.
        words = ["wrk", "-t1", f"-c{connections}", f"-d{LONGEST}s", f"--timeout={TIMEOUT}s"]
        words += ["-s", str(Path(__file__).with_name("load.lua")), base, "--", file.name]
        words += [] if seconds else [str(round(pause_ms))]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                line = ""
                for line in process.stdout or ():
                    if line == "started\n" and seconds:
                        time.sleep(seconds + 0.1)
                        process.send_signal(signal.SIGINT)
                    if line == "answered\n":
                        process.send_signal(signal.SIGINT)
            finally:
                process.kill()
    if process.returncode:
        raise RuntimeError(f"wrk ended with {process.returncode}: {line}")
    return Result(**json.loads(line))
