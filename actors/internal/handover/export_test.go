package handover

// SealPreamble makes the check of a preamble right, whatever else is in it.
func SealPreamble(p []byte) { appendCheck(p[:preambleBytes-checkBytes]) }
