"""Apache httpd's mod_cache_socache keeps its cached pages in the server by socache_memcache. It connects by TCP only."""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from check import *
from web import fetch, running

CONFIGURATION = """
ServerRoot {directory}
ServerName localhost
PidFile {directory}/pid
ErrorLog {directory}/error.log
Listen 127.0.0.1:{port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
LoadModule cache_module {modules}/mod_cache.so
LoadModule cache_socache_module {modules}/mod_cache_socache.so
LoadModule socache_memcache_module {modules}/mod_socache_memcache.so
{user}
StartServers 1
ServerLimit 1
ThreadsPerChild 8
MaxRequestWorkers 8
ThreadLimit 8
MinSpareThreads 1
MaxSpareThreads 8
CacheSocache memcache:{where}
CacheSocacheMaxSize 524288
CacheSocacheReadSize 65536
CacheEnable socache /
CacheHeader on
CacheLock off
ProxyPass / http://127.0.0.1:{origin}/
"""

asked = []


class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        body = f"{self.path} made {asked.count(self.path)} times".encode() + b"." * (200_000 if self.path == "/long" else 0)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store" if self.path == "/private" else "max-age=600")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=site.serve_forever, daemon=True).start()


def configuration(directory, port):
    user = "User www-data\nGroup www-data\nLoadModule unixd_module /usr/lib/apache2/modules/mod_unixd.so"
    return CONFIGURATION.format(
        directory=directory, port=port, where=SERVER, origin=site.server_port, modules="/usr/lib/apache2/modules",
        # The module is built in on Debian; naming it is for other builds.
        user=user if os.path.exists("/usr/lib/apache2/modules/mod_unixd.so") else "User www-data\nGroup www-data",
    )


def items():
    with socket.create_connection((HOST, PORT), 20) as control:
        control.sendall(b"stats\r\n")
        told = b""
        while not told.endswith(b"END\r\n"):
            told += control.recv(65536)
    return int(next(line for line in told.split(b"\r\n") if line.startswith(b"STAT curr_items ")).split()[2])


command = lambda directory: ["apache2", "-X", "-d", directory, "-f", f"{directory}/conf"]
with running(command, configuration, "httpd") as (port, directory):
    first = {}
    for path in ("/", "/page?n=1", "/page?n=2", "/long"):
        status, headers, first[path] = fetch(port, path)
        same((status, first[path].split(b".")[0].endswith(b"made 1 times")), (200, True), f"the site makes {path}")
    same(items() >= 4, True, "httpd keeps its pages in the server")
    for path, page in first.items():
        for _ in range(3):
            status, headers, body = fetch(port, path)
            same((status, body), (200, page), f"{path} is served from the cache")
            same(headers["x-cache"].split()[0], "HIT", f"httpd says so of {path}")
    same(len(asked), 4, "the site is asked once for each page")
    for n in (1, 2):
        same(fetch(port, "/private")[2], b"/private made %d times" % n, "what must not be stored is not")
    with socket.create_connection((HOST, PORT), 20) as control:
        control.sendall(b"flush_all\r\n")
        same(control.recv(100), b"OK\r\n", "flush_all")
    same(fetch(port, "/")[2], b"/ made 2 times", "after flush_all the site is asked again")
done()
