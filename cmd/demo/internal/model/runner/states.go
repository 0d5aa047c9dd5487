package runner

import (
	"context"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The state of a recurrent model serves exactly as many tokens as it was computed
// for. The engine copies a working page when it is told of a commit or a fork, and
// stores it at a release: the page must have the state after exactly the tokens that
// the engine knows to be computed. So
//
//   - a step with drafts writes no state. Commit says how many tokens are right, and
//     writes the state after these (decide);
//   - a sequence whose commit has failed is released without being stored.

// unknownState is the position of a working page whose contents are in doubt.
const unknownState = -1

// isState tells whether a pool holds states.
func (r *Runner) isState(pool int) bool { return r.pools[pool].Kind == windows.KindState }

// checkState refuses what needs the state after so many tokens if the working page
// has another one.
func (s *Sequence) checkState(what string, tokens int) error {
	if s.recurrent && s.state != tokens {
		return refusals.New(messages.ErrNotSupported, "%s at %d tokens: the working page has the state after %d", what, tokens, s.state)
	}
	return nil
}

// checkRewind refuses a rewind below the state.
func (s *Sequence) checkRewind(tokens int) error {
	if left := len(s.Tokens) - tokens; s.recurrent && left < s.state {
		return refusals.New(messages.ErrNotSupported, "a rewind to %d tokens: the working page has the state after %d", left, s.state)
	}
	return nil
}

// decide writes the states after the accepted tokens of steps with drafts, in one
// kernel.
func (r *Runner) decide(ctx context.Context, batch []*Sequence, upTo []int) error {
	d := &decision{r: r}
	var decided []int
	for i, s := range batch {
		if s.drafted == nil || upTo[i] <= s.state {
			continue
		}
		decided = append(decided, i)
		d.add(s, upTo[i]-s.drafted.Cached)
	}
	if len(decided) == 0 {
		return nil
	}
	ticket, err := r.launch.Launch(r.compute, gpu.Kernel{Label: "states", Nanos: kernelNanos, Waits: d.waits, Writes: d.writes, Run: d.body})
	if err != nil {
		return err
	}
	for _, i := range decided {
		batch[i].state, batch[i].last, batch[i].drafted = upTo[i], ticket, nil
	}
	return r.sync(context.WithoutCancel(ctx), ticket)
}

// decision is the kernel that writes states.
type decision struct {
	r      *Runner
	steps  []*model.Sequence
	n      []int
	tables []messages.Tables
	waits  []gpu.Ticket
	writes []gpu.Access
}

// add has the state after n tokens of a sequence's step written.
func (d *decision) add(s *Sequence, n int) {
	tables := make(messages.Tables, len(d.r.pools))
	for p, table := range s.cached.Tables() {
		if d.r.isState(p) {
			page := table[0][0]
			tables[p] = [][]messages.PageID{{page}}
			d.writes = append(d.writes, gpu.Access{Slot: d.r.slot(p, page)})
		}
	}
	d.waits = append(d.waits, s.cached.Ready()...)
	d.steps, d.n, d.tables = append(d.steps, s.drafted), append(d.n, n), append(d.tables, tables)
}

// body runs on the device's stream.
func (d *decision) body(bytes gpu.PageBytes) {
	for i, step := range d.steps {
		step.Pages = make([][][]byte, len(d.r.pools))
		for p, table := range d.tables[i] {
			if table != nil {
				step.Pages[p] = [][]byte{bytes(d.r.slot(p, table[0][0]))}
			}
		}
		d.r.exec.WriteStates(step, d.n[i])
	}
}

// slot names a device page.
func (r *Runner) slot(pool int, page messages.PageID) gpu.Slot {
	return gpu.Slot{Pool: r.handles[pool], Tier: messages.Primary, Page: page}
}
