"""What the web servers' tests share: a server in a directory of its own on a port of its own, and requests to it."""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command, configuration, what):
    """Runs `command(directory)` with `configuration(directory, port)` written to `directory/conf`; gives the port and directory.

    Another program may take the port between its choice and its use; then it is tried again.
    """
    for _ in range(5):
        directory = tempfile.mkdtemp(prefix="nuthatch-web-")
        port = free_port()
        with open(os.path.join(directory, "conf"), "w") as file:
            file.write(configuration(directory, port))
        log = open(os.path.join(directory, "log"), "wb")
        child = subprocess.Popen(command(directory), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            if answers(child, port):
                yield port, directory
                return
            told = open(os.path.join(directory, "log"), errors="replace").read()
        finally:
            child.terminate()
            child.wait()
            log.close()
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(f"{what} does not start: {told}")


def answers(child, port):
    deadline = time.monotonic() + 20
    while child.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            time.sleep(0.01)
    return False


def fetch(port, path, headers={}):
    """The status, the headers by lower-case name, and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body
