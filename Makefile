# Cabine's commands. `make` lists them; CONTRIBUTING.md says when to use which.
# Variables are given after the target: make demo DURATION=60s REPORT=report.json

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# How long the demo shows the system at work before it closes its books.
DURATION ?= 60s
# File that demo and bench write their report to, as JSON; none when empty.
REPORT ?=
# Further flags for demo and bench.
ARGS ?=
# Packages to test, and how. One package at a time: more would make the real servers of the tests wait for each other
# on a small machine, and tests that measure time would measure that. Tests of one package mostly wait for servers, so
# more of them run at a time than there are cores.
PACKAGES ?= work
TEST_FLAGS ?= -p 1 -parallel 4 -timeout 15m
# Orders of the bad day of test/robustness that belongs to `make test`; `make bad-day` has all of them.
ORDERS ?= 2000
# 1: a machine that cannot reach the vulnerability database passes `make check` without that check.
VULN_OFFLINE_OK ?= 0

modules = $(shell go list -m -f '{{.Dir}}')
# The pinned tools live in a module outside the workspace, so that they cannot lift the versions that we ship.
pinned := cd tools/pinned && GOWORK=off go tool
tool = $$(cd $(CURDIR)/tools/pinned && GOWORK=off go tool -n $(1))

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)


.PHONY: demo
demo: ## Run the whole system on this machine and compare its books with the bank's (DURATION, REPORT, ARGS)
	go run ./tools/demo --duration $(DURATION) $(if $(REPORT),--report $(REPORT)) $(ARGS)

.PHONY: bench
bench: ## Measure against a PING, against other locks and against a bare read loop (REPORT, ARGS)
	go run ./tools/bench $(if $(REPORT),--report $(REPORT)) $(ARGS)

.PHONY: bench-outbound
bench-outbound: ## Measure payments sent through two permits against what these allow (REPORT, ARGS)
	go run ./tools/bench --only outbound $(if $(REPORT),--report $(REPORT)) $(ARGS)

.PHONY: bench-settle
bench-settle: ## Measure obligations per second and replica, the netting of a million, and the reconciliation of a million (REPORT, ARGS)
	go run ./tools/bench --only settle $(if $(REPORT),--report $(REPORT)) $(ARGS)

.PHONY: bench-capacity
bench-capacity: ## Measure BACEN's capacity test, scaled to a minute, and ten times its rate (REPORT, ARGS)
	go run ./tools/bench --only capacity $(if $(REPORT),--report $(REPORT)) $(ARGS)

.PHONY: build
build: ## Build every program into bin/
	go build -o bin/ work


.PHONY: test
test: compiler ## Run everything that CI runs; installs PostgreSQL and Redis where it may (PACKAGES, TEST_FLAGS)
	go vet work
	CABINE_ORDERS=$(ORDERS) go test -race -shuffle=on $(TEST_FLAGS) $(PACKAGES)
	@if command -v apt-get >/dev/null; then set -x; \
		go test -tags install -run '^TestUnpack' -timeout 15m ./libs/devstack; fi

.PHONY: bad-day
bad-day: ## Run the bad day whole: 20,000 payments while everything fails that can, and books that must agree (ARGS)
	go test ./test/robustness -run '^TestOneBadDay$$' -count=1 -v -timeout 30m $(ARGS)

.PHONY: check
check: lint alone unchanged vuln test ## Run what a change must pass before it is proposed

.PHONY: lint
lint: ## Check style and import rules
	$(call tool,golangci-lint) config verify
	$(call tool,golangci-lint) run $(modules:%=%/...)
	$(pinned) buf lint ../..

.PHONY: alone
alone: ## Compile every module as it ships, without its siblings' versions
	@for module in $(modules); do echo "GOWORK=off go vet ./...  in $$module"; \
		(cd "$$module" && GOWORK=off go vet ./...); done

# The state of the tree, committed or not: a check may run before the commit.
tree_state = { git diff HEAD; git ls-files --others --exclude-standard -z | xargs -0r sha256sum; } | sha256sum

.PHONY: unchanged
unchanged: ## Check that generating and tidying change nothing
	@for fix in generate tidy; do \
		before=$$($(tree_state)); $(MAKE) $$fix; \
		if [ "$$before" != "$$($(tree_state))" ]; then \
			git status --short; \
			echo "make $$fix changed the tree: look at the difference and commit it"; exit 1; \
		fi; \
	done

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what we call (VULN_OFFLINE_OK=1 to pass without the database)
	@check=$(call tool,govulncheck); \
	for module in $(modules); do \
		echo "govulncheck ./...  in $$module"; status=0; \
		(cd "$$module" && "$$check" ./...) || status=$$?; \
		case $$status in \
		0) ;; \
		3) echo "vulnerable: raise the versions named above"; exit 1 ;; \
		*) echo "THE CHECK FOR VULNERABILITIES WAS NOT DONE: govulncheck ended with $$status, see above"; \
			[ "$(VULN_OFFLINE_OK)" = 1 ] && exit 0; \
			echo "run it where the database can be reached, or accept that with VULN_OFFLINE_OK=1"; exit 1 ;; \
		esac; \
	done


.PHONY: fix
fix: generate tidy ## Repair what can be repaired: format, generate, tidy
	$(call tool,golangci-lint) run --fix $(modules:%=%/...)

.PHONY: generate
generate: ## Generate the database code and the plugin protocol
	$(pinned) sqlc generate --file ../../sqlc.yaml
	$(pinned) buf generate ../.. --template ../../buf.gen.yaml -o ../..

# go mod tidy does not know the workspace, and go work sync leaves go.sum a line short: hence both, in this order.
.PHONY: tidy
tidy: ## Bring the modules to common versions and drop what is not used
	go work sync
	@for module in $(modules); do echo "go mod tidy  in $$module"; (cd "$$module" && go mod tidy); done

# The race detector needs a C compiler, which a machine with Go alone lacks.
.PHONY: compiler
compiler:
	@command -v "$$(go env CC)" >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing a C compiler for the race detector"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get install --yes --no-install-recommends gcc libc6-dev >/dev/null 2>&1 || \
			{ apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev; } >/dev/null; \
	else \
		echo "no C compiler ($$(go env CC)): the race detector needs one; install gcc and the C library's headers"; exit 1; \
	fi
