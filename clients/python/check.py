"""What the Python clients' tests share: where the server is, comparing, and letting time pass.

SERVER is `host:port` or the path of a UNIX socket; SERVERS names three more, by TCP; CLOCK=debugtime says that the server's clock
can be moved, otherwise time passes by itself.
"""

import os
import socket
import sys
import time

SERVER = os.environ["SERVER"]
SERVERS = os.environ["SERVERS"].split()
IS_UNIX = SERVER.startswith("/")
HOST, _, _port = ("", "", "0") if IS_UNIX else SERVER.rpartition(":")
PORT = int(_port)

EVERY_BYTE = bytes(range(256)) + b"\r\nEND\r\n\0"
LARGE = b"0123456789abcdef" * (900 * 1024 // 16)
TOO_LARGE = b"x" * (2 * 1024 * 1024)
LONGEST_KEY = "k" * 250

checks = 0


def same(got, expected, what):
    """Counts a claim and ends the program when it is false."""
    global checks
    checks += 1
    if got != expected:
        sys.exit(f"{what}: expected {short(expected)} and got {short(got)}")


def true(got, what):
    same(bool(got), True, what)


def fails(action, errors, what):
    """The action must raise one of the errors."""
    global checks
    checks += 1
    try:
        got = action()
    except errors:
        return
    sys.exit(f"{what}: expected {errors} and got {short(got)}")


def short(value):
    text = repr(value)
    return text if len(text) < 300 else f"{text[:140]} … {text[-140:]} ({len(text)} characters)"


def pass_seconds(seconds):
    if os.environ.get("CLOCK") != "debugtime":
        # One more: a server that counts whole seconds may round in the item's favour.
        time.sleep(seconds + 1)
        return
    with socket.socket(socket.AF_UNIX if IS_UNIX else socket.AF_INET) as control:
        control.settimeout(20)
        control.connect(SERVER if IS_UNIX else (HOST, PORT))
        control.sendall(b"debugtime %d\r\n" % (seconds + 1))
        same(control.recv(100), b"OK\r\n", "debugtime")


def done():
    print("ok", checks)
