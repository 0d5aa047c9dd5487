//go:build !linux

package bench

import "time"

var began = time.Now()

// threadTime is the time itself where the system does not say what a thread has had.
func threadTime() time.Duration { return time.Since(began) }

// processTime is the time itself, too.
func processTime() time.Duration { return time.Since(began) }
