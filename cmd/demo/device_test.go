package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
)

// Without a GPU, or without gpu/cuda in the program, the demo says so in a line.
func TestDeviceCuda(t *testing.T) {
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"--device", "cuda"}, strings.NewReader(""), &out, &errs)
	assert.Equal(t, statusFailed, status)
	assert.Equal(t, 1, strings.Count(errs.String(), "\n"))
	assert.Contains(t, errs.String(), "cuda")
	assert.Empty(t, out.String())
	if !linked {
		require.ErrorIs(t, openDevice("cuda"), gpu.ErrNoDriver)
	}
	require.Error(t, openDevice("abacus"))
}
