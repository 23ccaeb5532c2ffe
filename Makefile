# The commands of this project, for people and CI. They are implemented in scripts/ and in the Swift package.

.DEFAULT_GOAL := help
.PHONY: help run build package image install uninstall test lint format asan tsan conformance contract fuzz bench profile instructions soak soak-redis powerloss restarts workers kills peers replication simulation clean

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do \
	  printf '  make %-12s %s\n' "$$name" "$$text"; done

run: build ## Build a release and start a demo gateway with a built-in upstream
	@exec .build/release/drawbridge demo

build: ## Install missing build packages and build a release (.build/release/drawbridge)
	@scripts/build

package: build ## Make a Debian package of the release, .build/package/drawbridge_VERSION_ARCHITECTURE.deb
	@scripts/setup package
	@scripts/package

image: ## Build the container image drawbridge:VERSION with docker, podman or buildah (ENGINE=podman: only with podman)
	@ENGINE="$(ENGINE)" BUILD_FLAGS="$(BUILD_FLAGS)" scripts/image >/dev/null

install: ## Install the program of 'make build' with manual, completions, documentation and units below PREFIX (default /usr/local; DESTDIR for packagers)
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install

uninstall: ## Remove what 'make install' has installed (with the same PREFIX and DESTDIR)
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install --uninstall

test: ## Build, run all tests and linters; the last line is 'N passed, N failed'
	@scripts/test

lint: ## Check the style of Swift, Python and shell code
	@scripts/setup test
	@scripts/lint

format: ## Correct the style where a tool can
	@scripts/setup test
	@scripts/lint --fix

asan: ## Run the tests with the address sanitizer
	@scripts/test --sanitize address

tsan: ## Run the tests with the thread sanitizer
	@scripts/test --sanitize thread

conformance: ## Run all 517 cases of the Autobahn TestSuite against the WebSocket client
	@scripts/conformance full

contract: build ## Check the running program against openapi.yaml with 500 random requests per operation (schemathesis)
	@scripts/setup test
	@DRAWBRIDGE_CONTRACT_EXAMPLES=500 .venv/bin/python -m pytest Tests/Integration/test_contract.py

bench: ## Measure Drawbridge against other servers (about 20 minutes; SHORT=1: 4 minutes; MEASURES="post poll": only these; BESIDE=PROGRAM: against another build)
	@scripts/bench $(if $(SHORT),--short) $(if $(BESIDE),--beside $(BESIDE)) $(MEASURES)

profile: ## Profile the gateway under load (LOADS="post fan-out": only these loads)
	@scripts/profile $(LOADS)

instructions: ## Count the instructions per request (PROGRAMS="/before /after": compare release programs)
	@scripts/instructions $(PROGRAMS)

fuzz: ## Fuzz every parser of untrusted bytes with libFuzzer, 30 seconds each (more options: scripts/fuzz)
	@scripts/fuzz

soak: ## Run all kinds of load at once for an hour (MINUTES=N), then kill a gateway with a store 1,000 times (KILLS=N), and check what became of each message
	@scripts/soak $(if $(MINUTES),--minutes $(MINUTES))
	@scripts/soak --kills $(or $(KILLS),1000)

soak-redis: build ## Kill, stop and partition three gateways, Redis and Sentinels for 300 s (SECONDS=N, SEED=N) in each of four ways to run Redis (KINDS="wait single": only these), then take Redis away for 600 s (AWAY=N)
	@scripts/setup test
	@.venv/bin/python Tests/Integration/chaos_redis.py $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(addprefix --only ,$(KINDS))
	@DRAWBRIDGE_REDIS_AWAY=$(or $(AWAY),600) .venv/bin/python -m pytest Tests/Integration/test_replicas_redis_away.py -k long_time -n 3

powerloss: ## Simulate power failures at hundreds of moments (SEEDS=N) and a failure of each disk operation, and check the stores
	@scripts/setup test
	@DRAWBRIDGE_POWER_FAILURES=$(or $(SEEDS),20) swift test --disable-xctest --filter "PowerFailure|aFaultAtAnyOperation"

restarts: build ## Restart one gateway, and three on Redis, during 10,000 requests: no request may fail (OTHER=PROGRAM: also upgrade from this program, and back)
	@scripts/setup test
	@DRAWBRIDGE_OPERATION_REQUESTS=10000 $(if $(OTHER),DRAWBRIDGE_OTHER_BINARY=$(OTHER)) .venv/bin/python -m pytest \
	  Tests/Integration/test_graceful_operation.py Tests/Integration/test_replicas_restarts.py

workers: build ## Kill curl workers at random while 50 of them handle 10,000 messages, and check that each message is handled, in order
	@scripts/setup test
	@DRAWBRIDGE_CONSUMER_MESSAGES=10000 DRAWBRIDGE_CONSUMER_WORKERS=50 .venv/bin/python -m pytest Tests/Integration/test_consumers.py -k curl_workers

kills: build ## Kill Socket.IO servers of both versions 100 times each under load, with and without recovery, and check what became of each event
	@scripts/setup test
	@DRAWBRIDGE_SOCKETIO_KILLS=100 .venv/bin/python -m pytest Tests/Integration/test_socketio_kills.py -n 2

peers: ## Bridge RabbitMQ, Home Assistant, Jupyter, Crossbar.io and other services, restart them, and print a table (NAMES="RabbitMQ Mopidy": only these)
	@scripts/peers $(NAMES)

replication: ## Simulate gateways that share a session on Redis, with 5,000 seeds (SEEDS=N) and with each planted bug
	@scripts/setup test
	@DRAWBRIDGE_REPLICATION_SEEDS=$(or $(SEEDS),5000) swift test --disable-xctest --filter ReplicationSimulation

simulation: ## Simulate clients, gateways and a hostile store with 1,000 seeds (SEEDS=N) and a crash at each entry of the store, and find each planted bug
	@scripts/setup test
	@DRAWBRIDGE_SIMULATION_SEEDS=$(or $(SEEDS),1000) swift test --disable-xctest --filter SimulationTests

clean: ## Remove all build output (keeps .venv and .tools, which would have to be downloaded again)
	rm -rf .build .build-address .build-thread .build-fuzz
