package actors_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// TestPrioritiesEndAfterFailures: a pool that is made again knows until when its
// pages have their priorities, whichever actor it was that failed.
func TestPrioritiesEndAfterFailures(t *testing.T) {
	for _, name := range append([]string{""}, fallible...) {
		for _, ended := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				r := newRig(t, setup{
					pages:  []windows.PageCounts{{Primary: 4}},
					change: func(c *windows.Config) { c.EventBufferMaxSize = 0 },
				})
				q := messages.AdmitRequest{Tokens: run(0, 2*tpb),
					Retention: &messages.Retention{Ranges: []messages.RetentionRange{
						{End: messages.EndOfPrompt, Priority: 90, Duration: time.Minute},
					}}}
				a, err := r.Admit(ctx, q)
				require.NoError(t, err)
				s := admitted(q, &a)
				require.NoError(t, r.compute(r.writer, s, len(q.Tokens)))
				require.NoError(t, r.release(s))
				r.store(run(100, 2*tpb)) // used later, worth less
				if name != "" {
					require.NoError(t, r.points.Arm(name))
				}
				if _, err = r.Lookup(ctx, messages.Prefix{Tokens: run(0, 1)}); err != nil {
					require.ErrorIs(t, err, messages.ErrInternal)
				}
				wait := time.Minute - time.Second
				if ended {
					wait = time.Minute
				}
				time.Sleep(wait)
				r.store(run(200, 2*tpb))
				found, err := r.Lookup(ctx, messages.Prefix{Tokens: append(q.Tokens, 7)})
				require.NoError(t, err)
				want := len(q.Tokens)
				if ended {
					want = 0
				}
				assert.Equal(t, want, found.MatchedTokens, "after the failure of %q, ended: %v", name, ended)
				require.NoError(t, r.Check(ctx))
				r.close()
			})
		}
	}
}
