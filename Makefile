# `make` without a target lists all targets.

ROUNDS ?= 1000
SECONDS ?= 60
ONLY ?=
N ?= 5000
PEERS ?=
EVENTS ?= 5000000
# Fewer rounds on MongoDB: a server takes longer to start there, and to recover from a killed one's unfinished transactions.
MONGO_ROUNDS ?= 10

# Builds the binary and all tests together: with -p, dependencies would be rebuilt with fewer features.
BUILD = cargo test --locked --workspace --no-run

.PHONY: help test test-long foreign http-api sdk peers-report mongo fuzz lint docs-check cli-reference bench bench-engine bench-frames bench-connections bench-groups bench-reading bench-backup bench-marks bench-mongo bench-curves flamegraph bench-peers abuse crash

help: ## list all targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

test: lint docs-check ## run everything that has to pass, lints included
	cargo test --locked --workspace
	$(MAKE) mongo
	$(MAKE) foreign
	$(MAKE) http-api
	$(MAKE) sdk
	$(MAKE) peers-report

foreign: ## test the built binary with npm's ws and Python's websockets (needs node 20, npm, python 3.11)
	$(BUILD)
	tests/foreign/run.sh $(or $(CARGO_TARGET_DIR),target)/debug/prombus

http-api: ## test HTTP against its OpenAPI description and its documentation (needs curl, python 3.11)
	$(BUILD)
	tests/http-api/run.sh $(or $(CARGO_TARGET_DIR),target)/debug/prombus

sdk: ## check, build and test the TypeScript client, in Node and Chromium (needs node 20, npm)
	$(BUILD)
	sdk/js/test/run.sh $(or $(CARGO_TARGET_DIR),target)/debug/prombus

peers-report: ## test the report of bench-peers
	cargo test --locked --manifest-path bench/peers/report/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)/peers-client

mongo: ## run the server's suites on a real MongoDB, installed under target (needs python 3.11 with pip)
	PROMBUS_TEST_ENGINE=mongodb PROMBUS_EXACTLY_ONCE_ROUNDS=$(MONGO_ROUNDS) PROMBUS_KILL_ROUNDS=$(MONGO_ROUNDS) \
		$$(scripts/test-program.sh server suite) gateway:: exactly_once:: killed::a_group

test-long: test fuzz crash ## run test, fuzz and crash, a million simulated steps, and kill servers many more times
	SIMULATION_STEPS=1000000 cargo test --locked -p prombus-engine --lib simulation
	PROMBUS_KILL_ROUNDS=100 cargo test --locked -p prombus-server -- killed
	$(MAKE) mongo MONGO_ROUNDS=100

fuzz: ## fuzz both targets, SECONDS each
	scripts/fuzz.sh frame $(SECONDS)
	scripts/fuzz.sh token_and_pattern $(SECONDS)

lint: ## check formatting, clippy and rustdoc; warnings are errors
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

docs-check: ## check docs/asyncapi.yaml with the AsyncAPI parser (needs node and npm)
	scripts/check-asyncapi.sh

cli-reference: ## write the help of all commands into docs/cli.md
	PROMBUS_UPDATE_REFERENCE=1 cargo test --locked -p prombus-server --test suite -- cli::reference

bench: bench-engine bench-frames bench-connections bench-groups bench-reading bench-backup bench-marks ## run the benchmarks that need no other system

bench-engine: ## compare the disk engine with its baselines (ONLY=append, fsync, read, reopen, memory, topics, deleting, random-ids, large)
	cargo bench --locked -p prombus-engine --bench engine -- $(ONLY)

bench-frames: ## compare parsing and writing frames with serde_json
	cargo bench --locked -p prombus-proto --bench frames

bench-connections: ## measure the memory of N idle connections, half of them with a subscription
	cargo bench --locked -p prombus-server --bench connections -- $(N)

bench-groups: ## compare publishing to a topic with 10,000 groups, of which 10 have members, and to one with 10
	cargo bench --locked -p prombus-server --bench groups

bench-reading: ## compare export and replay of 5 million events over HTTP with a plain file
	cargo bench --locked -p prombus-server --bench reading

bench-backup: ## compare a backup of EVENTS events, while others are published, with cp of the same bytes
	cargo bench --locked -p prombus-server --bench backup -- $(EVENTS)

bench-marks: ## measure a million marks of handled events: time, memory and disk
	cargo bench --locked -p prombus-bus --bench marks

bench-mongo: ## compare writing to MongoDB with the bare driver (ONLY=commits, bus; needs pip)
	cargo bench --locked -p prombus-engine-mongo --bench mongo -- $(ONLY)

bench-curves: ## measure throughput by connections, topics, event size and groups (needs python 3.11)
	cargo build --locked --release -p prombus-server
	scripts/bench-curves.sh $(or $(CARGO_TARGET_DIR),target)/release/prombus

flamegraph: ## draw two flame graphs of the server into docs/benchmarks (needs perf)
	scripts/flamegraph.sh

bench-peers: ## compare with NATS, Redis and MongoDB, and update docs/benchmarks.md (PEERS=options of bench/peers/run.sh; needs pip, apt)
	bench/peers/run.sh $(PEERS)

abuse: ## run all attackers beside a well-behaved client, on the release binary, and print by how much it suffers (SECONDS per phase, ONLY=some)
	cargo build --locked --release -p prombus-server
	PROMBUS_ABUSE_ONLY="$(ONLY)" PROMBUS_ABUSE_SECONDS=$(SECONDS) PROMBUS_ABUSE_BINARY=$(abspath $(or $(CARGO_TARGET_DIR),target))/release/prombus \
		cargo test --locked -p prombus-server --test suite -- abuse

crash: ## run the crash test with ROUNDS kills
	PROMBUS_CRASH_ROUNDS=$(ROUNDS) cargo test --locked -p prombus-engine --test suite -- crash
