module github.com/kvactor/kvactor/bench/peers

go 1.26.0
