# Plain go commands, so that nothing here needs make.
LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
PKG  ?= ./events
FUZZ ?= FuzzLog
TIME ?= 30s
SEED ?= 1
STEPS ?= 100000
# Go spends up to a minute on making each input smaller that has reached something
# new, and does nothing else meanwhile.
SHRINK ?= 10x

.PHONY: help check test race isolation fuzz sim bench demo gpu cover ci

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 8

check: ## vet and lint
	go vet ./...
	go run $(LINT) run ./...

test: ## all tests
	go test ./...

race: ## all tests with the race detector and the invariants of the cores
	go test -race -short -tags invariants ./...

isolation: ## no actor touches what another holds: a goroutine for each, under the race detector
	go test -race -short -tags isolated ./actors ./actors/internal/survival ./actors/internal/hazards \
		./actors/internal/encoderdecoder

fuzz: ## one fuzz target: make fuzz PKG=./events FUZZ=FuzzLog TIME=30s
	go test -run=NONE -fuzz='^$(FUZZ)$$' -fuzztime=$(TIME) -fuzzminimizetime=$(SHRINK) $(PKG)

sim: ## a simulation of the whole engine, invariants on: make sim SEED=7 STEPS=100000
	go test -tags invariants ./bench/sim -run=TestSeeds -timeout=0 -seed=$(SEED) -steps=$(STEPS)

bench: ## all benchmarks
	go test -run=NONE -bench=. -benchmem ./...

demo: ## the demo binary's own help
	go run ./cmd/demo --help

gpu: ## on a machine with an NVIDIA device: all that a device must do, a pool of two processes, and the profile of its link in profile.json
	KVACTOR_PROFILE=$(CURDIR)/profile.json go test -v -count=1 -run='^(TestDevice|TestSharedPool|TestSharedEngine)$$' ./gpu/cuda

cover: ## coverage of each package, profile in cover.out
	go test -coverprofile=cover.out ./...

ci: ## everything that a change has to pass
	.ci/run
