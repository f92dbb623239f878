"""A kernel that sends recorded outputs, and can break the protocol in ways in which a real kernel cannot be made to.

It reads the notebook named by REPLAY, by default `replay.json` in its directory. It answers the n-th request for a
source with the outputs of the n-th cell with this source. A cell with the key `replay` in its metadata also does one
of: `exit`, `freeze`, `no-idle`, `gap`, `no-reply`, `unsigned`, `garbage`, `cut`, `many`.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session


class Replay:
    def __init__(self, connection: dict[str, Any], cells: list[dict[str, Any]]) -> None:
        self.session = Session(key=connection["key"].encode(), signature_scheme="hmac-sha256")
        self.cells = [cell for cell in cells if cell["cell_type"] == "code"]
        self.asked: Counter[str] = Counter()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self.sockets: dict[str, Any] = {}
        for name, kind in (("shell", zmq.ROUTER), ("control", zmq.ROUTER), ("stdin", zmq.ROUTER), ("iopub", zmq.PUB)):
            self.sockets[name] = context.socket(kind)
            self.sockets[name].bind(f"tcp://127.0.0.1:{connection[f'{name}_port']}")
        heart = context.socket(zmq.REP)
        heart.bind(f"tcp://127.0.0.1:{connection['hb_port']}")
        threading.Thread(target=lambda: zmq.proxy(heart, heart), daemon=True).start()
        self.count = 0

    def serve(self) -> None:
        poller = zmq.Poller()
        for name in ("shell", "control"):
            poller.register(self.sockets[name], zmq.POLLIN)
        while True:
            for channel in dict(poller.poll()):
                identities, message = self.session.recv(channel, mode=0)
                assert message is not None
                self.handle(channel, identities, message)

    def publish(self, kind: str, content: dict[str, Any], parent: Any) -> None:
        self.session.send(self.sockets["iopub"], kind, content, parent, ident=kind.encode())

    def handle(self, channel: Any, identities: Any, message: dict[str, Any]) -> None:
        kind = message["header"]["msg_type"]
        self.publish("status", {"execution_state": "busy"}, message)
        content: dict[str, Any] = {"status": "ok"}
        action = None
        if kind == "kernel_info_request":
            language = {"name": "replay", "version": "1", "mimetype": "text/plain", "file_extension": ".txt"}
            content |= {"protocol_version": "5.3", "implementation": "replay", "implementation_version": "1"}
            content |= {"language_info": language, "banner": "replay"}
        elif kind == "execute_request":
            action, content = self.execute(message)
        elif kind == "shutdown_request":
            content |= {"restart": False}
        if action != "no-reply":
            self.session.send(channel, kind.replace("_request", "_reply"), content, message, ident=identities)
        if action != "no-idle":
            self.publish("status", {"execution_state": "idle"}, message)
        if kind == "shutdown_request":
            time.sleep(0.1)
            os._exit(0)

    def execute(self, message: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
        code = message["content"]["code"]
        same = [cell for cell in self.cells if "".join(cell["source"]) == code]
        place = self.asked[code]
        self.asked[code] += 1
        cell = same[min(place, len(same) - 1)] if same else {"outputs": [], "metadata": {}}
        self.count += 1
        content: dict[str, Any] = {"status": "ok", "execution_count": self.count, "payload": [], "user_expressions": {}}
        self.publish("execute_input", {"code": code, "execution_count": self.count}, message)
        for output in cell["outputs"]:
            kind = output["output_type"]
            body = {key: value for key, value in output.items() if key != "output_type"}
            if kind == "execute_result":
                body["execution_count"] = self.count
            self.publish(kind, body, message)
            if kind == "error":
                content |= {"status": "error"} | body
        return self.misbehave(cell["metadata"].get("replay"), message), content

    def misbehave(self, action: str | None, message: dict[str, Any]) -> str | None:
        socket = self.sockets["iopub"]
        if action == "exit":
            os._exit(0)
        elif action == "freeze":
            time.sleep(1000)
        elif action in ("gap", "many"):
            for number in range(1200):
                made = self.session.msg("stream", {"name": "stdout", "text": f"{number}\n"}, message)
                if action == "many" or number != 600:
                    self.session.send(socket, made)
        elif action == "unsigned":
            stranger = Session(key=b"another", signature_scheme="hmac-sha256")
            stranger.send(socket, "stream", {"name": "stdout", "text": "forged\n"}, message, ident=b"stream")
        elif action == "garbage":
            socket.send_multipart([b"stream", b"<IDS|MSG>", b"", b"{", b"{", b"{", b"{"])
        elif action == "cut":
            socket.send_multipart([b"stream", b"<IDS|MSG>", b"", b"x" * (200 << 20)])
        return action


if __name__ == "__main__":
    # Other tools interrupt a kernel before they shut it down.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cells = json.loads(Path(os.environ.get("REPLAY", "replay.json")).read_text())["cells"]
    Replay(json.loads(Path(sys.argv[1]).read_text()), cells).serve()
