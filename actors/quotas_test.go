package actors_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// divided gives tenant a half of 8 device pages and of 4 host pages, b a quarter.
func divided(t *testing.T) *rig {
	return newRig(t, setup{
		pages: []windows.PageCounts{{Primary: 8, Secondary: 4}},
		change: func(c *windows.Config) {
			c.SaltQuotas = map[string]float64{"a": 0.5, "b": 0.25}
			c.SecondaryOffloadMinPriority = 0
		},
	})
}

// begin admits and computes blocks of a tenant.
func begin(t *testing.T, r *rig, salt string, from, blocks int) (messages.Prefix, *sequence) {
	q := messages.AdmitRequest{Namespace: messages.Namespace{Salt: salt},
		Tokens: run(from, blocks*tpb)}
	a, err := enginetest.Again(
		func() (messages.Admitted, error) { return r.Admit(context.Background(), q) })
	require.NoError(t, err)
	s := admitted(q, &a)
	require.NoError(t, r.compute(r.writer, s, len(q.Tokens)))
	return messages.Prefix{Namespace: q.Namespace, Tokens: q.Tokens}, s
}

// visit leaves blocks of a tenant in the cache.
func visit(t *testing.T, r *rig, salt string, from, blocks int) messages.Prefix {
	p, s := begin(t, r, salt, from, blocks)
	require.NoError(t, r.release(s))
	return p
}

// TestQuotasOutliveFailures: which tenant a page counts for is known to sequences and
// tree, so a restart of any actor leaves the tenants what they had.
func TestQuotasOutliveFailures(t *testing.T) {
	for _, name := range append([]string{""}, fallible...) {
		t.Run("after "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				r := divided(t)
				kept := visit(t, r, "b", 0, 2) // all that b may have
				visit(t, r, "a", 0, 6)         // 2 beyond its quota
				_, s := begin(t, r, "c", 900, 1)
				if name != "" {
					require.NoError(t, r.points.Arm(name))
				}
				// c takes what a is over, then a takes from itself, thrice its quota.
				visit(t, r, "c", 100, 1)
				for i := range 3 {
					visit(t, r, "a", 1000+100*i, 4)
				}
				require.NoError(t, r.Check(ctx))
				found, err := r.Lookup(ctx, messages.Prefix{Namespace: kept.Namespace,
					Tokens: append(kept.Tokens, 7)})
				require.NoError(t, err)
				assert.Equal(t, messages.Found{MatchedTokens: len(kept.Tokens),
					PrimaryTokens: len(kept.Tokens)}, found, "b is within its quota")
				r.verify(s)
				require.NoError(t, r.release(s))
				r.close()
			})
		})
	}
}
