package actors_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// With a goroutine for each actor no actor runs on a goroutine of the host, and all
// answers, recoveries included, are as they are otherwise. The race detector watches.
// The build tag isolated runs all tests of this package so.
func TestActorsWithGoroutinesOfTheirOwn(t *testing.T) {
	r := newRig(t, setup{
		windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 24, Secondary: 24},
			{Primary: 24, Secondary: 24}},
	}, enginetest.WithOwnGoroutines())
	ctx := context.Background()
	for i := range 6 {
		r.store(run(100*i, 16))
	}
	names := []string{"coordinator", "tree", "offloader", "pool:wfullh1", "pool:w8h1"}
	for i, name := range names {
		require.NoError(t, r.points.ArmWithin(name, 1))
		var hosts sync.WaitGroup
		for h := range 3 {
			hosts.Go(func() {
				a, err := r.Admit(ctx, messages.AdmitRequest{Tokens: run(100*(i+h), 18)})
				if err == nil {
					_, err = r.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}})
				}
				_ = err // the round that the actor has failed in may be lost
			})
			hosts.Go(func() { _, _ = r.Rebalance(ctx, nil) })
		}
		hosts.Wait()
	}
	require.NoError(t, r.Check(ctx))
	r.store(run(900, 16))
	r.verify()
	r.close()
}

// The offloader is on a goroutine of its own with the option. Without it, it is on
// that of the caller.
func TestWhoseGoroutineAnActorRunsOn(t *testing.T) {
	for _, own := range []bool{false, true} {
		var list []actors.Option
		if own {
			list = append(list, enginetest.WithOwnGoroutines())
		}
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}}, list...)
		var stacks []string
		r.device.submits = func() {
			stack := make([]byte, 1<<14)
			stacks = append(stacks, string(stack[:runtime.Stack(stack, false)]))
		}
		r.store(run(0, 16))
		r.store(run(100, 16))
		require.NotEmpty(t, stacks)
		for _, stack := range stacks {
			assert.Equal(t, !own && !ownByDefault(), strings.Contains(stack, "(*Engine).Do"),
				"own goroutines: %v", own)
		}
		r.close()
	}
}

// ownByDefault tells whether this build gives each actor a goroutine.
func ownByDefault() bool {
	s := settings.New()
	return s.OwnGoroutines
}
