"""pymemcache over TLS, and Python's own ssl (OpenSSL) where a client is not particular enough.

Starts a server of its own, PROGRAM called `memcached` with -Z, and uses the certificates that come with memcached's tests in SUITE.
"""

import os
import shutil
import ssl
import subprocess
import tempfile

from check import *
from pymemcache.client.base import Client, PooledClient

CERTIFICATES = os.path.join(os.environ["SUITE"], "t")


def context(version=None, shows_certificate=True):
    made = ssl.create_default_context(cafile=os.path.join(CERTIFICATES, "cacert.pem"))
    # The certificate is for test.com, the server at 127.0.0.1.
    made.check_hostname = False
    if version:
        made.minimum_version = made.maximum_version = version
    if shows_certificate:
        made.load_cert_chain(os.path.join(CERTIFICATES, "client_crt.pem"), os.path.join(CERTIFICATES, "client_key.pem"))
    return made


def connect(port, how):
    stream = how.wrap_socket(socket.create_connection(("127.0.0.1", port), 20), server_hostname="test.com")
    stream.settimeout(20)
    return stream


def ask(stream, request):
    """The answer to one line: a line."""
    stream.sendall(request)
    answer = b""
    while not answer.endswith(b"\r\n"):
        piece = stream.recv(4096)
        if not piece:
            break
        answer += piece
    return answer


def storage(client, name):
    same(client.set("a", EVERY_BYTE, noreply=False), True, f"{name} set")
    same(client.get("a"), EVERY_BYTE, f"{name} get")
    same(client.set("large", LARGE, noreply=False), True, f"{name} set of 900 KiB")
    same(client.get("large"), LARGE, f"{name} get of 900 KiB")
    pairs = {f"many:{n}": b"value %d" % n for n in range(1000)}
    same(client.set_many(pairs, noreply=False), [], f"{name} set_many")
    same(client.get_many([*pairs, "absent"]), pairs, f"{name} get_many")
    same(client.set("n", b"41", noreply=False) and client.incr("n", 1), 42, f"{name} incr")
    same(client.delete("a", noreply=False), True, f"{name} delete")
    same(client.get("a"), None, f"{name} get of what was deleted")


def is_refused(port, how):
    """In TLS 1.3 a client learns that it was refused when it reads."""
    try:
        return ask(connect(port, how), b"mn\r\n") == b""
    except (ssl.SSLError, ConnectionError):
        return True


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


with tempfile.TemporaryDirectory(prefix="nuthatch-tls-") as directory:
    for name in ("server_crt.pem", "server_key.pem", "cacert.pem"):
        shutil.copy(os.path.join(CERTIFICATES, name), directory)
    program = os.path.join(directory, "memcached")
    os.symlink(os.environ["PROGRAM"], program)
    port, plain = free_port(), free_port()
    user = ["-u", "root"] if os.getuid() == 0 else []
    options = "ssl_chain_cert=server_crt.pem,ssl_key=server_key.pem,ssl_ca_cert=cacert.pem,ssl_verify_mode=2"
    server = subprocess.Popen(
        [program, "-Z", "-o", options, "-l", f"127.0.0.1:{port},notls:127.0.0.1:{plain}", *user], cwd=directory,
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                beside = socket.create_connection(("127.0.0.1", plain), 20)
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline or server.poll() is not None:
                    sys.exit("the server does not start")
                time.sleep(0.01)

        for name, version in (("TLS 1.2", ssl.TLSVersion.TLSv1_2), ("TLS 1.3", ssl.TLSVersion.TLSv1_3)):
            how = context(version)
            storage(Client(("127.0.0.1", port), timeout=20, tls_context=how), f"{name} Client")
            storage(PooledClient(("127.0.0.1", port), timeout=20, tls_context=how, max_pool_size=4), f"{name} PooledClient")
            stream = connect(port, how)
            same(stream.version(), name.replace(" ", "v"), f"{name} is spoken")
            same(ask(stream, b"set b 0 0 1\r\n1\r\n"), b"STORED\r\n", f"{name} set by hand")
            # The server says that it closes, which OpenSSL makes an error of when it does not.
            same(ask(stream, b"quit\r\n"), b"", f"{name} quit")
            true(is_refused(port, context(version, shows_certificate=False)), f"{name} without a certificate")

        with socket.create_connection(("127.0.0.1", port), 20) as stream:
            stream.sendall(b"get b\r\n")
            try:
                true(b"VALUE" not in stream.recv(4096), "a client in the clear gets no answer")
            except ConnectionResetError:
                pass
        same(ask(beside, b"set plain 0 0 1\r\n1\r\n"), b"STORED\r\n", "notls: is plain")

        stats = Client(("127.0.0.1", port), timeout=20, tls_context=context()).stats()
        true(b"ssl_handshake_errors" in stats and b"time_since_server_cert_refresh" in stats, "stats of TLS")
        stream = connect(port, context())
        same(ask(stream, b"refresh_certs\r\n"), b"OK\r\n", "refresh_certs")
        before = stream.getpeercert(True)
        with open(os.path.join(directory, "server_crt.pem"), "w") as broken:
            broken.write("nothing")
        true(ask(stream, b"refresh_certs\r\n").startswith(b"Error loading the certificate chain"), "refresh_certs of a broken file")
        same(connect(port, context()).getpeercert(True), before, "the certificate in force stays")
    finally:
        server.terminate()
        server.wait(20)
done()
