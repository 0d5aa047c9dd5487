module github.com/kvactor/kvactor/bench/baselines

go 1.26.0

require (
	github.com/hashicorp/go-immutable-radix/v2 v2.1.0
	github.com/hashicorp/golang-lru/v2 v2.0.7
)
