//go:build !unix

package survival_test

import "time"

var began = time.Now()

// processorTime is the time itself where the system does not tell what a process
// has had of the processors.
func processorTime() time.Duration { return time.Since(began) }
