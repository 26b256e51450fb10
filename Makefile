# The front door. `make` alone lists what there is.

ROUNDS ?= 1000
SECONDS ?= 60
ONLY ?=
N ?= 5000
PEERS ?=
# On MongoDB a server takes longer to start, and to get over what a killed one left unfinished.
MONGO_ROUNDS ?= 10

# The binary and all tests at once: with -p, dependencies would be built once more, with fewer features.
BUILD = cargo test --locked --workspace --no-run

.PHONY: help test test-long foreign http-api sdk peers-report mongo fuzz lint docs-check bench bench-engine bench-frames bench-connections bench-reading bench-marks bench-mongo bench-curves flamegraph bench-peers crash

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

test: lint docs-check ## everything that has to pass, lints included
	cargo test --locked --workspace
	$(MAKE) mongo
	$(MAKE) foreign
	$(MAKE) http-api
	$(MAKE) sdk
	$(MAKE) peers-report

foreign: ## the built binary, driven by npm's ws and Python's websockets (needs node 20, npm, python 3.11)
	$(BUILD)
	tests/foreign/run.sh $(or $(CARGO_TARGET_DIR),target)/debug/prombus

http-api: ## the built binary's HTTP, held to its description and its documentation (needs curl, python 3.11)
	$(BUILD)
	tests/http-api/run.sh $(or $(CARGO_TARGET_DIR),target)/debug/prombus

sdk: ## the TypeScript client: checked, built, and tested with the built binary in Node and Chromium (needs node 20, npm)
	$(BUILD)
	sdk/js/test/run.sh $(or $(CARGO_TARGET_DIR),target)/debug/prombus

peers-report: ## what bench-peers makes of its measurements
	cargo test --locked --manifest-path bench/peers/report/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)/peers-client

mongo: ## the server's suites once more, on a real MongoDB (needs python 3.11 with pip; installs it under target)
	PROMBUS_TEST_ENGINE=mongodb PROMBUS_EXACTLY_ONCE_ROUNDS=$(MONGO_ROUNDS) PROMBUS_KILL_ROUNDS=$(MONGO_ROUNDS) \
		$$(scripts/test-program.sh server suite) gateway:: exactly_once:: killed::a_group

test-long: test fuzz crash ## the same and more: fuzzing, and many more kills
	PROMBUS_KILL_ROUNDS=100 cargo test --locked -p prombus-server -- killed
	$(MAKE) mongo MONGO_ROUNDS=100

fuzz: ## both fuzz targets, SECONDS each
	scripts/fuzz.sh frame $(SECONDS)
	scripts/fuzz.sh token_and_pattern $(SECONDS)

lint: ## formatting, clippy and documentation, warnings are errors
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

docs-check: ## docs/asyncapi.yaml, by the AsyncAPI project's parser (needs node and npm)
	scripts/check-asyncapi.sh

bench: bench-engine bench-frames bench-connections bench-reading bench-marks ## all benchmarks

bench-engine: ## the storage engine beside its baselines (ONLY=append, fsync, read, reopen, memory, topics)
	cargo bench --locked -p prombus-engine --bench engine -- $(ONLY)

bench-frames: ## reading and writing the gateway's frames, beside serde_json
	cargo bench --locked -p prombus-proto --bench frames

bench-connections: ## memory of N idle connections, half of them with a subscription
	cargo bench --locked -p prombus-server --bench connections -- $(N)

bench-reading: ## export and replay of 5 million events over HTTP, beside a plain file
	cargo bench --locked -p prombus-server --bench reading

bench-marks: ## a million marks of handled events: time, memory and disk, beside a plain file
	cargo bench --locked -p prombus-bus --bench marks

bench-mongo: ## writing to MongoDB beside the bare driver (ONLY=commits, bus; installs a server under target; needs pip)
	cargo bench --locked -p prombus-engine-mongo --bench mongo -- $(ONLY)

bench-curves: ## publishing with more connections, topics and bytes, and deliveries to many groups (needs python 3.11)
	cargo build --locked --release -p prombus-server
	scripts/bench-curves.sh $(or $(CARGO_TARGET_DIR),target)/release/prombus

flamegraph: ## where the server's time goes, as two flame graphs in docs/benchmarks (needs perf)
	scripts/flamegraph.sh

bench-peers: ## us and NATS, Redis and MongoDB on the same work; writes its section of docs/benchmarks.md (PEERS=options of bench/peers/run.sh; needs pip, apt)
	bench/peers/run.sh $(PEERS)

crash: ## the crash test, long: killed ROUNDS times
	PROMBUS_CRASH_ROUNDS=$(ROUNDS) cargo test --locked -p prombus-engine --test suite -- crash
