# Plain go commands, so that nothing here needs make.
LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
PKG  ?= ./events
FUZZ ?= FuzzLog
TIME ?= 30s

.PHONY: help check test race fuzz sim bench demo cover ci

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 8

check: ## vet and lint
	go vet ./...
	go run $(LINT) run ./...

test: ## all tests
	go test ./...

race: ## all tests with the race detector and the invariants of the cores
	go test -race -short -tags invariants ./...

fuzz: ## one fuzz target: make fuzz PKG=./events FUZZ=FuzzLog TIME=30s
	go test -run=NONE -fuzz='^$(FUZZ)$$' -fuzztime=$(TIME) $(PKG)

sim: ## the simulations of the whole engine, invariants on
	go test -count=1 -tags invariants -run=Sim ./...

bench: ## all benchmarks
	go test -run=NONE -bench=. -benchmem ./...

demo: ## the demo binary's own help
	go run ./cmd/demo --help

cover: ## coverage of each package, profile in cover.out
	go test -coverprofile=cover.out ./...

ci: ## everything that a change has to pass
	.ci/run
