# make run     build the server and start it in front of a small wiki: memcached on 11211, pages on 8080
# make test    install what the tests need, then run everything
# make fuzz    fuzz each codec and a whole connection for FUZZ_SECONDS each
# make coherence  two servers before each database for minutes, ROUNDS times everything that can happen: nothing lost, nothing old
# make kills   a hundred kills in the middle of commits, of SQLite's process, MariaDB, PostgreSQL: nothing acknowledged is missing
# make conformance  the published test suite of HTTP caches, from the npm registry, against the page cache: a table; SUITE=DIR for another copy
# make bench   compare with memcached on this machine: TRACES=DIR adds misses on traces, FLAGS=... picks parts (bench/README.md)
# make instructions  record how many instructions the hot paths take, after a change that is meant to take more (or takes fewer)
# make clean   remove everything built

FUZZ_SECONDS ?= 60
ROUNDS ?= 20

.PHONY: run test fuzz coherence kills conformance bench instructions clean

run:
	cargo build --release --package nuthatch
	exec "$${CARGO_TARGET_DIR:-target}/release/nuthatch" demo

test:
	scripts/check.sh

fuzz:
	scripts/fuzz.sh $(FUZZ_SECONDS)

coherence:
	NUTHATCH_COHERENCE_ROUNDS=$(ROUNDS) cargo test --package nuthatch --test rows --locked -- --ignored --nocapture --test-threads 1 for_long

kills:
	cargo test --package nuthatch-rows --test killed --locked -- --ignored --nocapture

conformance:
	SUITE='$(SUITE)' scripts/conformance.sh

bench:
	TRACES='$(TRACES)' bench/run.sh $(FLAGS)

instructions:
	UPDATE_INSTRUCTIONS=1 scripts/check.sh instructions

clean:
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
