"""Runs memcached's own tests, unmodified, against the program that PROGRAM names.

They are the tests of the release whose source SUITE names; skips-VERSION.txt says what of them is not held against the program.
With the argument `tls`, their clients speak TLS and those that are about TLS do not skip themselves.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, PROGRAM = os.environ["SUITE"], os.environ["PROGRAM"]
HERE = os.path.dirname(os.path.abspath(__file__))
# Most of their time is spent asleep.
AT_ONCE = 6
PATIENCE_SECONDS = 150
ENVIRONMENT = {**os.environ, "SSL_TEST": "1"} if sys.argv[1:] == ["tls"] else os.environ
# Not about a server.
NOT_RUN = {"whitespace.t", "multiversioning.t", "stress-memcached.pl"}


def release():
    """Which memcached the tests come from."""
    with open(os.path.join(SOURCE, "version.m4")) as lines:
        return re.search(r"VERSION_NUMBER\], \[([0-9.]+)\]", lines.read()).group(1)


def skips():
    table = {}
    with open(os.path.join(HERE, f"skips-{VERSION}.txt")) as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                name, numbers, _reason = line.split(None, 2)
                table[name] = numbers if numbers == "*" else {int(number) for number in numbers.split(",")}
    return table


def run(directory, name, skipped):
    """How many claims hold, and a sentence when one does not."""
    try:
        done = subprocess.run(
            ["perl", "-It/lib", f"t/{name}"], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=PATIENCE_SECONDS, env=ENVIRONMENT,
        )
    except subprocess.TimeoutExpired:
        return 0, f"{name} did not end within {PATIENCE_SECONDS} seconds"
    results = re.findall(r"^(not )?ok (\d+)([^\n]*)", done.stdout, re.MULTILINE)
    failed = [f"{number}{what[:120]}" for no, number, what in results if no and int(number) not in skipped and "# TODO" not in what]
    if failed:
        return 0, f"{name}: not ok {'; '.join(failed)}"
    if not results and "1..0" not in done.stdout:
        return 0, f"{name} ended with {done.returncode} and no result: {done.stderr[-300:]}"
    # The status counts the failures; a plan that was not kept is 255.
    if done.returncode == 255 or done.returncode > len(skipped):
        return 0, f"{name} ended with {done.returncode}: {done.stderr[-300:]}"
    return len([1 for no, _, _ in results if not no]), None


VERSION = release()
with tempfile.TemporaryDirectory(prefix="nuthatch-suite-") as directory:
    for part in ("t", "doc"):
        shutil.copytree(os.path.join(SOURCE, part), os.path.join(directory, part))
    subprocess.run(["cc", "-o", f"{directory}/timedrun", os.path.join(SOURCE, "timedrun.c")], check=True, capture_output=True)
    for name in ("memcached", "memcached-debug"):
        os.symlink(PROGRAM, os.path.join(directory, name))
    table = skips()
    names = sorted(name for name in os.listdir(os.path.join(directory, "t")) if name.endswith(".t") and name not in NOT_RUN)
    unknown = set(table) - set(names)
    if unknown:
        sys.exit(f"skips-{VERSION}.txt names tests that are not there: {', '.join(sorted(unknown))}")
    wanted = [name for name in names if table.get(name) != "*"]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda name: run(directory, name, table.get(name, set())), wanted))
    failures = [sentence for _, sentence in outcomes if sentence]
    if failures:
        print(*failures, sep="\n")
        sys.exit(1)
    print(f"the tests of memcached {VERSION}")
    print("ok", sum(count for count, _ in outcomes))
