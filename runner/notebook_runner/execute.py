"""Executes cells in the kernel of another container.

The runner reads the sockets itself instead of using nbclient. It must see the size of a message before it decodes the
message, the numbers of messages that were lost, and the request of a cell to end the kernel.
"""

import dataclasses
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session

from notebook_runner import probes
from notebook_runner.judge import CellRun, Run, Status, Stop, finish
from notebook_runner.notebook import Notebook, Output, coalesced, output
from notebook_runner.settings import Settings

MAX_CELL_OUTPUT = 20 * 1024 * 1024
MAX_OUTPUT = 100 * 1024 * 1024
# zmq drops the connection above this size, before the message needs memory here.
MAX_MESSAGE = 4 * MAX_CELL_OUTPUT
# A throttled kernel may need minutes to import its packages.
START_SECONDS = 180.0
PROBE_SECONDS = 60.0
# The kernel sends the state 'idle' after a cell's last output. Without it, output may be missing.
IDLE_SECONDS = 10.0
# A closed connection means that the kernel ended or that zmq closed it. The record of an end follows soon.
RECORD_SECONDS = 5.0
# The supervisor kills the kernel after 10 s.
STOP_SECONDS = 20.0
# zmq drops messages of a publisher only if more than 1,000 wait. Fewer messages never have a real gap.
QUEUE = 900


class Ended(Exception):
    """The run cannot continue."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.stop = Stop(reason, message)


class Link:
    """The directory that the runner shares with the supervisor.

    # Caveats
    The kernel can write into it, too. Its content can fail a run, and never makes one succeed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def hold(self) -> None:
        """Shows the supervisor that the runner lives, until this process ends."""
        temporary = self.directory / f".runner.lock.{uuid.uuid4().hex}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.held = os.open(temporary, flags, 0o640)
        fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock that appears before it is held would show a runner that ended.
        temporary.rename(self.directory / "runner.lock")

    def write(self, name: str, value: dict[str, Any]) -> None:
        temporary = self.directory / f".{name}.{uuid.uuid4().hex}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o640), "w", encoding="utf-8") as file:
            json.dump(value, file)
        temporary.rename(self.directory / name)

    def _open(self, name: str) -> int | None:
        try:
            return os.open(self.directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None

    def has_supervisor(self) -> bool | None:
        """Returns whether the supervisor lives, by the lock that it holds; `None` before it has started."""
        descriptor = self._open("supervisor.lock")
        if descriptor is None:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def exit(self) -> dict[str, Any] | None:
        """Returns the record of the supervisor that the kernel ended."""
        descriptor = self._open("exit.json")
        if descriptor is None:
            return None
        with open(descriptor, "rb") as file:
            content = file.read(16 * 1024)
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            record = None
        return record if isinstance(record, dict) else {"message": "the record of its end is unreadable"}


def ended(record: dict[str, Any]) -> Ended:
    """Returns the reason for which the kernel ended without a request."""
    missing = record.get("notFound")
    if isinstance(missing, dict):
        searched, found = str(missing.get("searched"))[:300], str(missing.get("found"))[:200]
        return Ended("KernelNotFound", f"kernel '{missing.get('name')}' not found; searched {searched}; found {found}")
    kills = record.get("oomKills")
    if isinstance(kills, int) and kills > 0:
        return Ended("OOMKilled", "the kernel was killed because its container reached the memory limit")
    if isinstance(record.get("signal"), int):
        return Ended("KernelDied", f"the kernel ended by signal {record['signal']}; no component reported the cause")
    how = record.get("message", f"it exited with code {record.get('code')}")
    return Ended("KernelDied", f"the kernel ended without a request: {how}")


class Kernel:
    """A connection to one kernel."""

    def __init__(self, link: Link, name: str | None) -> None:
        self.link, self.name = link, name
        self.context = zmq.Context()
        # Messages wait in the runner, where they are counted, and not in the kernel, which drops them.
        self.context.setsockopt(zmq.RCVHWM, 0)
        self.context.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self.context.setsockopt(zmq.LINGER, 0)
        key = uuid.uuid4().hex.encode()
        self.session = Session(key=key, signature_scheme="hmac-sha256")
        self.shell, self.control = self.context.socket(zmq.DEALER), self.context.socket(zmq.DEALER)
        self.iopub = self.context.socket(zmq.SUB)
        self.iopub.subscribe(b"")
        self.poller = zmq.Poller()
        self.cuts = self.iopub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        for channel in (self.shell, self.iopub, self.cuts):
            self.poller.register(channel, zmq.POLLIN)
        self.is_python = False
        self.total = self.in_cell = 0
        self.numbers: dict[str, set[int]] = {}
        self.cells: dict[str, _Collector] = {}
        self.displays: dict[str, list[Output]] = {}

    def start(self) -> None:
        """Hands the supervisor a connection, and waits until requests and outputs arrive.

        # Errors
        `Ended` if the kernel ends or does not respond.
        """
        ports = _free_ports(5)
        names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
        connection = dict(zip(names, ports, strict=True)) | {"transport": "tcp", "ip": "127.0.0.1"}
        connection |= {"signature_scheme": "hmac-sha256", "key": self.session.key.decode()}
        self.link.write("connection.json", connection | {"kernel_name": self.name or ""})
        for channel, name in ((self.shell, "shell_port"), (self.iopub, "iopub_port"), (self.control, "control_port")):
            channel.connect(f"tcp://127.0.0.1:{connection[name]}")
        # The operator limits the wait for the container; its image may still be pulled.
        while self.link.has_supervisor() is None and self.link.exit() is None:
            time.sleep(0.1)
        limit, has_reply, has_status, asked = time.monotonic() + START_SECONDS, False, False, 0.0
        while not (has_reply and has_status):
            if time.monotonic() > limit:
                raise Ended("KernelDied", f"the kernel did not respond within {START_SECONDS:.0f} s of its start")
            if time.monotonic() - asked > 1:
                self.session.send(self.shell, "kernel_info_request", {})
                asked = time.monotonic()
            for message in self._messages():
                kind, content = message["header"]["msg_type"], message["content"]
                has_status |= kind == "status"
                if kind == "kernel_info_reply":
                    has_reply = True
                    self.is_python = content.get("language_info", {}).get("name") == "python"

    def run(self, item: CellRun, timeout: float | None) -> None:
        """Executes one cell and records its outputs and status.

        # Errors
        `Ended` if the kernel ended, or if output is lost or too large.
        """
        self.in_cell = 0
        reply = self._execute({"code": item.cell.source, "store_history": True}, _Collector(item.cell.outputs), timeout)
        count = reply.get("execution_count")
        item.execution_count = count if isinstance(count, int) else None
        if any(payload.get("source") == "ask_exit" for payload in reply.get("payload") or []):
            raise Ended("KernelDied", "the cell asked the kernel to exit")
        status = Status.SUCCEEDED if reply.get("status") == "ok" else Status.FAILED
        item.status, item.error = finish(item.cell, status)

    def probe(self, source: str, number: int = 0) -> dict[str, Any]:
        """Evaluates a fixed text silently."""
        expressions = {"found": probes.expression(source, number)}
        content = {"code": "", "store_history": False, "silent": True, "user_expressions": expressions}
        try:
            return probes.value(self._execute(content, None, PROBE_SECONDS))
        except Ended as error:
            if error.stop.reason != "CellTimeout":
                raise
            return {"error": f"the kernel did not respond within {PROBE_SECONDS:.0f} s"}

    def disconnect(self) -> None:
        """Stops reading. A kernel that still floods its output would otherwise fill the memory of the runner."""
        self.iopub.disable_monitor()
        for channel in (self.iopub, self.shell):
            channel.close(linger=0)

    def stop(self) -> Stop | None:
        """Asks supervisor and kernel to end; returns why the kernel had ended before, if it had."""
        before = self.link.exit()
        try:
            self.link.write("stop", {})
            self.session.send(self.control, "shutdown_request", {"restart": False})
            limit = time.monotonic() + STOP_SECONDS
            while (record := self.link.exit()) is None and time.monotonic() < limit:
                if self.link.has_supervisor() is False and self.link.exit() is None:
                    return Stop("KernelDied", "the container of the kernel ended and left no record")
                time.sleep(0.05)
            if record is None:
                return Stop("KernelDied", f"the kernel did not end within {STOP_SECONDS:.0f} s of the request")
            return None if before is None and record.get("requested") is True else ended(record).stop
        finally:
            self.context.destroy(linger=500)

    def _execute(self, content: dict[str, Any], cell: "_Collector | None", timeout: float | None) -> dict[str, Any]:
        request = self.session.msg("execute_request", content | {"allow_stdin": False})
        self.session.send(self.shell, request)
        identifier = request["header"]["msg_id"]
        if cell is not None:
            self.cells[identifier] = cell
        start = time.monotonic()
        reply: dict[str, Any] | None = None
        replied, is_idle = start, False
        while reply is None or not is_idle:
            for message in self._messages():
                kind, is_ours = message["header"]["msg_type"], message["parent_header"].get("msg_id") == identifier
                if is_ours and kind == "execute_reply":
                    reply, replied = message["content"], time.monotonic()
                is_idle |= is_ours and kind == "status" and message["content"].get("execution_state") == "idle"
            now = time.monotonic()
            if timeout is not None and now - start > timeout:
                raise Ended("CellTimeout", f"the cell did not end within {timeout:g} s")
            if reply is not None and not is_idle and now - replied > IDLE_SECONDS:
                raise Ended("EvidenceLost", "the end of the cell's output did not arrive, so output may be lost")
        self._check_gap()
        return reply

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yields the messages that arrived; collects outputs. Checks the kernel if there are none."""
        ready = dict(self.poller.poll(200))
        is_cut = self.cuts in ready
        if not ready.keys() - {self.cuts}:
            # The record may follow the last message, so the queue is read first.
            self._check_alive(RECORD_SECONDS if is_cut else 0)
        if is_cut and not ready.keys() - {self.cuts}:
            raise Ended("OutputTooLarge", f"a message with output is larger than {MAX_MESSAGE >> 20} MiB")
        for channel in ready.keys() - {self.cuts}:
            frames = channel.recv_multipart()
            if channel is self.iopub:
                self._count(sum(len(frame) for frame in frames))
            try:
                message = self.session.deserialize(self.session.feed_identities(frames)[1])
                self._number(message["header"]["msg_id"])
                self._collect(message)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise Ended("EvidenceLost", f"a message of the kernel is invalid: {type(error).__name__}") from error
            yield message

    def _check_alive(self, wait: float) -> None:
        limit = time.monotonic() + wait
        while True:
            is_gone = self.link.has_supervisor() is False
            if (record := self.link.exit()) is not None:
                raise ended(record)
            if is_gone:
                raise Ended("KernelDied", "the container of the kernel ended and left no record")
            if time.monotonic() >= limit:
                return
            time.sleep(0.05)

    def _count(self, size: int) -> None:
        self.in_cell += size
        self.total += size
        if self.in_cell > MAX_CELL_OUTPUT or self.total > MAX_OUTPUT:
            limits = f"{MAX_CELL_OUTPUT >> 20} MiB for a cell, {MAX_OUTPUT >> 20} MiB in total"
            raise Ended("OutputTooLarge", f"the output is larger than {limits}")

    def _number(self, identifier: str) -> None:
        # Kernels that use jupyter_client number their messages: SESSION_PROCESS_NUMBER.
        sender, _, number = identifier.rpartition("_")
        if sender and number.isdecimal():
            self.numbers.setdefault(sender, set()).add(int(number))

    def _check_gap(self) -> None:
        for sender, numbers in self.numbers.items():
            span = max(numbers) - min(numbers) + 1
            if span > QUEUE and span > len(numbers):
                raise Ended("EvidenceLost", f"{span - len(numbers)} messages with output of the cell were lost")
            self.numbers[sender] = {max(numbers)}

    def _collect(self, message: dict[str, Any]) -> None:
        # Threads of an earlier cell may still write; their output belongs to that cell.
        cell = self.cells.get(message["parent_header"].get("msg_id"))
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "update_display_data":
            for shown in self.displays.get(content.get("transient", {}).get("display_id"), []):
                shown.data = dict(content["data"])
        elif cell is not None and kind == "clear_output":
            cell.clear(wait=bool(content.get("wait")))
        elif cell is not None and kind in ("stream", "display_data", "execute_result", "error"):
            found = output(content | {"output_type": kind})
            cell.append(found)
            display = content.get("transient", {}).get("display_id")
            if display is not None:
                self.displays.setdefault(display, []).append(found)


class _Collector:
    """Collects the outputs of a cell as a notebook shows them."""

    def __init__(self, outputs: list[Output]) -> None:
        self.outputs = outputs
        self.clears_next = False

    def clear(self, wait: bool) -> None:
        self.clears_next = wait
        if not wait:
            self.outputs.clear()

    def append(self, item: Output) -> None:
        if self.clears_next:
            self.clear(wait=False)
        self.outputs.append(item)


def execute(notebook: Notebook, settings: Settings, kernel: Kernel, on_start: Callable[[Run, CellRun], None]) -> Run:
    """Executes the cells in order until one fails. `on_start` records a cell before the kernel receives it."""
    cells = [CellRun(dataclasses.replace(cell, outputs=[])) for cell in notebook.cells if cell.source.strip()]
    run = Run(cells, has_ids=notebook.has_ids)
    expected = {item.cell for item in settings.expectations}
    item: CellRun | None = None
    try:
        kernel.start()
        for item in cells:
            if item.cell.is_skipped:
                item.status = Status.SKIPPED
                continue
            on_start(run, item)
            start = time.monotonic()
            try:
                kernel.run(item, settings.cell_timeout)
            finally:
                item.duration_ms = round((time.monotonic() - start) * 1000)
            if item.status is Status.FAILED:
                break
            if item.cell.index in expected and kernel.is_python and item.execution_count is not None:
                item.observed = kernel.probe(probes.RESULT, item.execution_count)
        if kernel.is_python:
            found = kernel.probe(probes.PACKAGES)
            run.packages = {} if "error" in found else {str(name): str(text) for name, text in found.items()}
    except Ended as error:
        run.stop = dataclasses.replace(error.stop, cell=item.cell.index if item else None)
        if item is not None and item.status is not Status.SKIPPED:
            item.status, item.error = Status.FAILED, error.stop.message
    finally:
        kernel.disconnect()
    for item in cells:
        item.cell.outputs = coalesced(item.cell.outputs)
    return run


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [int(entry.getsockname()[1]) for entry in sockets]
