"""nginx's memcached_pass serves the pages that PHP stored, and asks the site for the rest."""

import gzip
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python"))
from check import *
from web import fetch, running

CONFIGURATION = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream pages {{
        server {where};
        keepalive 4;
    }}
    server {{
        listen 127.0.0.1:{port};
        default_type text/html;
        location / {{
            set $memcached_key "page:$uri$is_args$args";
            memcached_pass pages;
            memcached_read_timeout 20s;
            memcached_gzip_flag 2;
            error_page 404 502 504 = @site;
        }}
        location @site {{
            add_header X-From site always;
            return 200 "made by the site";
        }}
    }}
}}
"""

where = f"unix:{SERVER}" if IS_UNIX else SERVER
pages = {
    "page:/": b"<h1>Nuthatch</h1>",
    "page:/long": b"<p>" + os.urandom(300_000).hex().encode(),
    "page:/search?q=seed": b"found",
    "page:/with%20space": b"a key that nginx escapes",
    "page:/tricky": b"VALUE x 0 3\r\nEND\r\n",
}


def configuration(directory, port):
    return CONFIGURATION.format(directory=directory, port=port, where=where)


with tempfile.TemporaryDirectory() as work:
    pairs = []
    for n, (key, page) in enumerate(pages.items()):
        with open(os.path.join(work, str(n)), "wb") as file:
            file.write(page)
        pairs += [key, file.name]
    stored = subprocess.run(["php", os.path.join(HERE, "..", "php", "store_page.php"), *pairs], capture_output=True, text=True)
    same((stored.returncode, stored.stdout), (0, f"ok {len(pages)}\n"), "PHP stores the pages")

with socket.socket(socket.AF_UNIX if IS_UNIX else socket.AF_INET) as control:
    control.settimeout(20)
    control.connect(SERVER if IS_UNIX else (HOST, PORT))
    packed = gzip.compress(b"packed " * 100)
    control.sendall(b"set page:/packed 2 0 %d\r\n%b\r\n" % (len(packed), packed))
    same(control.recv(100), b"STORED\r\n", "a compressed page is stored with the flag that tells nginx so")

command = lambda directory: ["nginx", "-p", directory, "-e", f"{directory}/error.log", "-c", f"{directory}/conf"]
with running(command, configuration, "nginx") as (port, directory):
    for _ in range(3):
        for key, page in pages.items():
            status, headers, body = fetch(port, key.removeprefix("page:"))
            same((status, body, headers.get("x-from")), (200, page, None), f"nginx serves {key}")
            same(headers["content-length"], str(len(page)), f"nginx tells the length of {key}")
    status, headers, body = fetch(port, "/packed", {"Accept-Encoding": "gzip"})
    same((status, headers.get("content-encoding"), gzip.decompress(body)), (200, "gzip", b"packed " * 100), "flags reach nginx")
    status, headers, body = fetch(port, "/absent")
    same((status, headers.get("x-from"), body), (200, "site", b"made by the site"), "a miss is made by the site")
done()
