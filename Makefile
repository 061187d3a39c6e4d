# `make` without a target lists the targets. Each target is one script or command that also works without make.

.DEFAULT_GOAL := help
.PHONY: help test quick lint e2e soak wheel dist image docs fuzz-smoke bench kill-matrix fuzz scale

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

test: ## Check everything: format, lints, Rust tests, doc tests, end-to-end suites, fuzz smoke
	@scripts/test

quick: ## Check format, lints and the Rust tests in a minute or two; the loop of a contributor
	@scripts/test quick

lint: ## Check format, lints, spelling, line lengths of the docs and API docs
	@scripts/test lint

e2e: ## Run the end-to-end suites against real peers (`make e2e SUITES="ag-ui"` for some of them)
	@e2e/run $(SUITES)

soak: ## Run the model test of several gateways under faults for an hour (`SEEDS=20 SEED_SECONDS=180`)
	@scripts/soak

kill-matrix: ## Kill, stop, fill and cut off real processes in every store and protocol; writes docs/kill-matrix.md
	@scripts/kill-matrix

wheel: ## Build the Python wheel (needs Python 3.10 or newer; maturin is installed into target/)
	@scripts/wheel

dist: ## Build a release into target/dist: static binary, archive, Debian package, SBOM, checksums
	@scripts/dist

image: ## Build the OCI image into target/dist, without a daemon
	@scripts/dist binary
	@scripts/image

docs: ## Build the docs site with search, versions and llms.txt into target/site, and check its links
	@scripts/docs

fuzz-smoke: ## Run every fuzz target briefly
	@scripts/fuzz-smoke

fuzz: ## Fuzz every target with coverage feedback (`FUZZ_SECONDS=60`); writes the table of docs/fuzzing.md
	@scripts/fuzz && scripts/fuzz report

scale: ## Compare the model of docs/scale.md with the measured points, and compute a size
	@bench/scale/simulate

bench: ## Measure speed, memory and instruction counts, compared with the peers
	@bench/run
