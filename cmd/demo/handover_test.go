package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two processes and one process generate the same tokens.
func TestHandover(t *testing.T) {
	status, out, errs := command(t, "", "handover", "--tokens", "12")
	require.Zero(t, status, errs)
	assert.Contains(t, out, "The same 12 tokens as in one process.")
	assert.Regexp(t, `[1-9]\d* pages, [1-9]\d* bytes handed over`, out)
}

func TestHandoverWithoutADecoder(t *testing.T) {
	status, _, errs := command(t, "", "handover", "--connect", "127.0.0.1:1")
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, errs, "127.0.0.1:1")
}
