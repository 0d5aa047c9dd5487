package protocol

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpanCountsSignatures: the signatures of n blocks are those that end with one of the n blocks:
// after powers of two in the first span, and then every block that ends a span.
func TestSpanCountsSignatures(t *testing.T) {
	for span := Span(1); span <= 16; span++ {
		signatures := 0
		for block := range 100 {
			require.Equal(t, signatures, span.Signatures(block))
			if (block+1)%int(span) == 0 || block < int(span) && bits.OnesCount(uint(block+1)) == 1 {
				require.Equal(t, block, span.Block(signatures), "signature %d of span %d", signatures, span)
				signatures++
			}
		}
	}
	require.Equal(t, Span(16), SpanOf(16))
	require.Equal(t, Span(1), SpanOf(512))
}
