# make run     build the server and start it in front of a small wiki: memcached on 11211, pages on 8080
# make test    install what the tests need, then run everything
# make fuzz    fuzz each codec and a whole connection for FUZZ_SECONDS each
# make bench   compare with memcached on this machine: TRACES=DIR adds misses on traces, FLAGS=... picks parts (bench/README.md)
# make instructions  record how many instructions the hot paths take, after a change that is meant to take more (or takes fewer)
# make clean   remove everything built

FUZZ_SECONDS ?= 60

.PHONY: run test fuzz bench instructions clean

run:
	cargo build --release --package nuthatch
	exec "$${CARGO_TARGET_DIR:-target}/release/nuthatch" demo

test:
	scripts/check.sh

fuzz:
	scripts/fuzz.sh $(FUZZ_SECONDS)

bench:
	TRACES='$(TRACES)' bench/run.sh $(FLAGS)

instructions:
	UPDATE_INSTRUCTIONS=1 scripts/check.sh instructions

clean:
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
