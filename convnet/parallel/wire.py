"""One connection of the control channel: a socket as a multiprocessing.connection, which frames and authenticates.

A message is a JSON object, a newline, and bytes that the object describes.
"""

import errno
import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from convnet.errors import UserError

STUCK = 5.0  # seconds after which a message that has begun to move is given up
PORT = "CONVNET_PORT"
Address = tuple[str, int]


class Line:
    """The connection with one other process; what breaks it raises EOFError or OSError."""

    def __init__(self, made: socket.socket):
        limit = struct.pack("ll", int(STUCK), 0)
        made.settimeout(None)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            made.setsockopt(socket.SOL_SOCKET, option, limit)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = Connection(made.detach())
        self._sending = threading.Lock()

    def send(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """From any thread."""
        with self._sending:
            self.connection.send_bytes(json.dumps(head).encode() + b"\n" + body)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message."""
        head, _, body = self.connection.recv_bytes().partition(b"\n")
        return json.loads(head), body

    def close(self) -> None:
        self.connection.close()


def listen(address: Address) -> socket.socket:
    """Where rank 0 waits for the others; port 0 takes a free one."""
    try:
        made = socket.create_server(address, backlog=1024)
    except OSError as error:
        host, port = address
        if error.errno != errno.EADDRINUSE:
            place = f"{host or 'this machine'}, port {port}"
            raise UserError(f"rank 0 cannot listen on {place}: {error.strerror}") from None
        text = f"port {port}, on which rank 0 waits for the other ranks, is in use"
        raise UserError(f"{text}; set {PORT} to a free one, the same for all ranks") from None
    made.settimeout(0.1)
    return made


def accept(listener: socket.socket, key: bytes) -> Line | None:
    """The next process that knows the key; None where none came for a moment, or one that does not."""
    try:
        made, _ = listener.accept()
    except TimeoutError:
        return None
    line = Line(made)
    try:
        deliver_challenge(line.connection, key)
        answer_challenge(line.connection, key)
    except (EOFError, OSError, AuthenticationError, AssertionError):
        line.close()
        return None
    return line


def connect(address: Address, key: bytes, seconds: float) -> Line:
    """To rank 0, which may take `seconds` to come up."""
    end, place = time.monotonic() + seconds, f"{address[0]}, port {address[1]}"
    while True:
        try:
            made = socket.create_connection(address, timeout=STUCK)
        except OSError as error:
            fault = error.strerror or str(error)
        else:
            if line := _greeted(Line(made), key, place):
                return line
            fault = "what listens there says nothing; rank 0 is stopped, or another program has the port"
        if time.monotonic() > end:
            raise UserError(f"rank 0 does not answer at {place} for {seconds:g} s: {fault}")
        time.sleep(0.1)


def _greeted(line: Line, key: bytes, place: str) -> Line | None:
    """When both ends have proved that they know the key; None where nothing comes: rank 0 may wait for another one."""
    try:
        answer_challenge(line.connection, key)
        deliver_challenge(line.connection, key)
        return line
    except BlockingIOError:
        line.close()
        return None
    except (EOFError, OSError, AuthenticationError, AssertionError):
        line.close()
        text = f"what answers at {place} is not rank 0 of this job"
        raise UserError(f"{text}; set {PORT} to a free port, the same for all ranks") from None
