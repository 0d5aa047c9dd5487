//go:build !debug

package coordinator

// debug: a Check after each round.
const debug = false
