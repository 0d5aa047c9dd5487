package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/cmd/demo/internal/watch"
)

// replayRun is one replay of the flags' list.
type replayRun struct {
	config replay.Config
	play   func(context.Context, replay.Config) (*replay.Result, error)

	result *replay.Result
	err    error
	done   chan struct{} // closed when the fields above are set
}

// hasEngine tells whether an engine is measured: the optimum is computed.
func (r *replayRun) hasEngine() bool { return r.config.Policy != paper.Optimal }

// runs lists the replays: for each number of pages each policy, one request at a time and
// then overlapping, as the flags say. The optimum reads the trace itself if t is nil.
func (f *replayFlags) runs(path string, t *replay.Trace) []*replayRun {
	var list []*replayRun
	add := func(c replay.Config, play func(context.Context, replay.Config) (*replay.Result, error)) {
		if f.watcher != nil {
			c.Observer = f.watcher.Observer
		}
		list = append(list, &replayRun{config: c, play: play, done: make(chan struct{})})
	}
	for _, pages := range f.pages {
		for _, policy := range f.policies {
			c := f.config(path, policy, pages)
			if policy == paper.Optimal {
				add(c, func(ctx context.Context, c replay.Config) (*replay.Result,
					error) {
					return replay.Optimal(ctx, c, t)
				})
				continue
			}
			if f.atomic {
				add(c, replay.Atomic)
			}
			if f.timed || !f.atomic {
				add(c, replay.Timed)
			}
		}
	}
	return list
}

// replayTrace runs all replays and prints them in the order of the flags.
func replayTrace(c *cobra.Command, path string, f *replayFlags) error {
	if err := f.checkOutputs(); err != nil {
		return err
	}
	if f.serve != "" {
		w, err := watch.Start(f.serve, "replay of "+filepath.Base(path), c.ErrOrStderr())
		if err != nil {
			return err
		}
		defer w.Close()
		f.watcher, f.jobs = w, 1 // the page shows one engine
	}
	runs := f.runs(path, nil)
	// One replay reads the trace as it goes. Several, the optimum and reports share it.
	total := -1
	var t *replay.Trace
	if len(runs) > 1 || f.policies[0] == paper.Optimal || f.reports() {
		var err error
		if t, err = replay.Load(path, f.limit); err != nil {
			return err
		}
		runs = f.runs(path, t)
		total = len(runs) * len(t.Requests)
	} else if f.limit > 0 {
		total = f.limit
	}
	ctx, stop := context.WithCancel(c.Context())
	defer stop()
	end := startRuns(ctx, runs, f.jobs, newReplayProgress(c, len(runs), total))
	defer end()
	defer stop() // before end waits: after an error the others need not go on
	for i, r := range runs {
		<-r.done
		if err := f.finished(c, r); err != nil {
			return errors.Join(err, f.soFar(c, runs[:i]))
		}
	}
	if !f.json && (len(runs) > 1 || !runs[0].hasEngine()) {
		if err := printComparison(c, results(runs)); err != nil {
			return err
		}
	}
	if f.reports() {
		return f.writeReports(c, path, t, results(runs))
	}
	return nil
}

// startRuns plays the replays, so many at a time, and gives a function that waits for the
// last one. The first to be played is the first of the list.
func startRuns(ctx context.Context, runs []*replayRun, jobs int, p *replayProgress) (wait func()) {
	next := make(chan *replayRun, len(runs))
	for _, r := range runs {
		next <- r
	}
	close(next)
	var players sync.WaitGroup
	for range min(jobs, len(runs)) {
		players.Go(func() {
			for r := range next {
				r.config.Progress = p.follow()
				r.result, r.err = r.play(ctx, r.config)
				p.ended(r)
				close(r.done)
			}
		})
	}
	return players.Wait
}

// soFar compares the replays that had ended when a signal came.
func (f *replayFlags) soFar(c *cobra.Command, ended []*replayRun) error {
	if c.Context().Err() == nil || f.json || len(ended) == 0 {
		return nil
	}
	return printComparison(c, results(ended))
}

// finished prints a replay that has ended, unless the comparison will. One that a signal has
// ended is printed as far as it came if it is the only one.
func (f *replayFlags) finished(c *cobra.Command, r *replayRun) error {
	if r.err != nil && (r.result == nil || f.json || !r.hasEngine()) {
		return r.err
	}
	err := r.err
	switch {
	case f.json:
		err = json.NewEncoder(c.OutOrStdout()).Encode(r.result)
	case r.hasEngine() && len(f.pages)*len(f.policies) == 1 && !(f.atomic && f.timed):
		err = errors.Join(err, printReplay(c, r.result))
	}
	if err != nil {
		return err
	}
	if n := len(r.result.Problems); n > 0 {
		return fmt.Errorf("%d problems, the first: %s", n, r.result.Problems[0])
	}
	return nil
}

// results are those of the replays.
func results(runs []*replayRun) (list []*replay.Result) {
	for _, r := range runs {
		list = append(list, r.result)
	}
	return list
}

// replayProgress is the progress of replays that go on at the same time.
type replayProgress struct {
	runs int

	mu       sync.Mutex
	progress *report.Progress
	requests int // of all replays
	over     int // replays
}

func newReplayProgress(c *cobra.Command, runs, total int) *replayProgress {
	return &replayProgress{runs: runs, progress: report.NewProgress(c.ErrOrStderr(), "replay", total)}
}

// follow gives a function that is called after each request of one replay.
func (p *replayProgress) follow() func(*replay.Result) {
	return func(r *replay.Result) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests++
		p.progress.Set(p.requests, p.note(r))
	}
}

func (p *replayProgress) note(r *replay.Result) string {
	hit := report.Percent(r.Hits, r.Blocks) + " of blocks hit"
	if p.runs == 1 {
		return hit
	}
	return fmt.Sprintf("%d of %d replays done, %s with %d pages: %s", p.over, p.runs, r.Policy,
		r.Pages, hit)
}

// ended counts a replay that is over. The last one ends the bar.
func (p *replayProgress) ended(r *replayRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over++
	if p.over == p.runs && r.err == nil {
		p.progress.Done(p.requests, p.note(r.result))
	}
}
