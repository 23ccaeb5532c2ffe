# Everything a person or CI does here, one word each. The work itself is in scripts/ and in the Swift package.

.DEFAULT_GOAL := help
.PHONY: help run build test lint format asan tsan conformance contract fuzz bench profile soak clean

help: ## Show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do \
	  printf '  make %-12s %s\n' "$$name" "$$text"; done

run: build ## Build the release program and start the demo: a gateway with a built-in upstream
	@exec .build/release/drawbridge demo

build: ## Install what the build needs, and build the release program (.build/release/drawbridge)
	@scripts/build

test: ## Build, run every test and the linters; the last line tells how many passed
	@scripts/test

lint: ## Check the style of Swift, Python and shell code
	@scripts/setup test
	@scripts/lint

format: ## Mend the style where a tool can
	@scripts/setup test
	@scripts/lint --fix

asan: ## Run the tests under the address sanitizer
	@scripts/test --sanitize address

tsan: ## Run the tests under the thread sanitizer
	@scripts/test --sanitize thread

conformance: ## Run all 517 cases of the Autobahn TestSuite against our WebSocket client
	@scripts/conformance full

contract: build ## Send the running program what openapi.yaml allows and forbids, 500 random cases an operation (schemathesis)
	@scripts/setup test
	@DRAWBRIDGE_CONTRACT_EXAMPLES=500 .venv/bin/python -m pytest Tests/Integration/test_contract.py

bench: ## Measure Drawbridge beside its peers (15 minutes; SHORT=1: 3; MEASURES="post poll": only these)
	@scripts/bench $(if $(SHORT),--short) $(MEASURES)

profile: ## Show where the gateway's time goes (LOADS="post fan-out": only under these)
	@scripts/profile $(LOADS)

fuzz: ## Run libFuzzer over every reader of hostile bytes, 30 seconds each (scripts/fuzz says more)
	@scripts/fuzz

soak: ## Let the upstream die a thousand times under load, and account for every message
	@scripts/soak

clean: ## Remove everything that was built (not .venv and .tools: they cost downloads)
	rm -rf .build .build-address .build-thread .build-fuzz
