package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/chats"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Sizes of the run with a real model. Its pages are too few for all that runs and is
// stored, so pages are evicted, offloaded and brought back.
const (
	realRunning   = 12
	realPages     = 110 // of each pool
	realHostPages = 300
	realBlock     = 16 // tokens
	realDraft     = 4  // tokens
)

// realRun is what one run of the chats with the real model gave.
type realRun struct {
	replies  [][]chats.Reply
	counters scheduler.Counters
	stats    inspect.Stats
	wall     time.Duration
}

// converseReally plays chats with the built-in model, whose attention reads the engine's
// pages, and again without any reuse, and compares every token.
func converseReally(c *cobra.Command, f *conversationFlags) (failed error) {
	l, err := openLanguage(tiny)
	if err != nil {
		return err
	}
	list := chats.Draw(chats.Plan{Chats: f.chats, Groups: 1 + f.chats/15, People: 4, Turns: 3,
		Seed: f.seed})
	fmt.Fprintf(c.ErrOrStderr(),
		"\n%d chats with %s, a real model of %s parameters,\nwith reuse and then without\n", len(list),
		l.name, report.Count(l.model.Parameters))
	progress := report.NewProgress(c.ErrOrStderr(), "chats", 2*3*len(list))
	config := runner.Config{Pages: realPages, HostPages: realHostPages}
	closeStore, err := f.store.attach(c.Context(), &config, l.files, l.path)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, closeStore()) }()
	with, err := playReally(c.Context(), l, list, progress, 0, config,
		scheduler.Config{Running: realRunning, Draft: realDraft})
	if err != nil {
		return err
	}
	without, err := playReally(c.Context(), l, list, progress, 3*len(list),
		runner.Config{NoReuse: true, Pages: 4 * realPages}, scheduler.Config{Running: realRunning})
	if err != nil {
		return err
	}
	progress.Done(2*3*len(list), "")
	return printReal(c, list, with, without)
}

// playReally plays the chats on an engine of its own.
func playReally(
	ctx context.Context, l *language, list []chats.Chat, progress *report.Progress, done int,
	c runner.Config, limits scheduler.Config,
) (_ *realRun, err error) {
	c.TokensPerBlock, c.Chunk, c.MaxLen, c.Checked = realBlock, 4*realBlock, 1024, true
	r, err := runner.Open(l.model, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	s, err := scheduler.New(r, limits)
	if err != nil {
		return nil, err
	}
	ended, turns := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(context.WithoutCancel(ctx)) }()
	go func() {
		for range turns {
			done++
			progress.Set(done, "")
		}
	}()
	p := chats.Player{Scheduler: s, Words: l.words, Form: l.form, Clients: 2 * realRunning,
		Progress: func() { turns <- struct{}{} }}
	run, begin := &realRun{}, time.Now()
	run.replies, err = p.Play(ctx, list)
	run.wall = time.Since(begin)
	close(turns)
	s.Stop()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	run.counters = s.Counters()
	if run.stats, err = r.Engine.Stats(ctx); err != nil {
		return nil, err
	}
	if problems := r.Hazards(); len(problems) > 0 {
		return nil, fmt.Errorf("%d accesses to pages that nothing orders, the first: %s", len(problems),
			problems[0])
	}
	return run, r.Engine.Check(ctx)
}

var errOtherTokens = errors.New("answers differ from those without reuse")

// printReal prints both runs side by side, a chat, and whether all tokens are the same.
func printReal(c *cobra.Command, list []chats.Chat, with, without *realRun) error {
	out := c.OutOrStdout()
	t := &report.Table{Title: "a real model, its attention over the engine's pages",
		Header: []string{"", "with reuse", "without"}}
	row := func(name string, value func(*realRun) string) { t.Row(name, value(with), value(without)) }
	row("answers",
		func(r *realRun) string { _, all := chats.Same(r.replies, nil); return report.Count(all) })
	row("right answers, for so small a model",
		func(r *realRun) string { return report.Count(r.right()) })
	row("prompt tokens", func(r *realRun) string { return report.Count(r.counters.PromptTokens) })
	row("of these reused",
		func(r *realRun) string {
			return report.Percent(r.counters.ReusedTokens, r.counters.PromptTokens)
		})
	row("least reuse of a prompt",
		func(r *realRun) string { return fmt.Sprintf("%.1f %%", 100*r.leastReused()) })
	row("pages evicted",
		func(r *realRun) string { return r.pages(func(p *inspect.PoolStats) int64 { return p.Evicted }) })
	row("pages offloaded",
		func(r *realRun) string {
			return r.pages(func(p *inspect.PoolStats) int64 { return p.Offloaded })
		})
	row("pages brought back",
		func(r *realRun) string {
			return r.pages(func(p *inspect.PoolStats) int64 { return p.Onboarded })
		})
	row("generated tokens",
		func(r *realRun) string { return report.Count(r.counters.GeneratedTokens) })
	row("of these accepted drafts",
		func(r *realRun) string {
			return report.Percent(r.counters.AcceptedTokens, r.counters.GeneratedTokens)
		})
	row("preemptions", func(r *realRun) string { return report.Count(r.counters.Preemptions) })
	row("steps", func(r *realRun) string { return report.Count(r.counters.Steps) })
	row("median time to the first token",
		func(r *realRun) string { return report.Duration(r.median()) })
	row("time", func(r *realRun) string { return report.Duration(r.wall) })
	if err := t.Write(out); err != nil {
		return err
	}
	fmt.Fprintln(out, "\none of the chats")
	for i, turn := range list[0].Turns {
		r := with.replies[0][i]
		fmt.Fprintf(out, "  %s\n  > %s (%d of %d prompt tokens were cached)\n", turn.Question, r.Text,
			r.Reused, r.Prompt)
	}
	same, all := chats.Same(with.replies, without.replies)
	fmt.Fprintf(out, "\n%s of %s answers have the same tokens with and without reuse\n",
		report.Count(same), report.Count(all))
	if same != all {
		return errOtherTokens
	}
	return nil
}

// leastReused is the least share of a prompt that was reused. It is 0 in an engine that
// begins with nothing, as its first prompt finds nothing.
func (r *realRun) leastReused() float64 {
	least := 1.0
	for _, chat := range r.replies {
		for _, reply := range chat {
			least = min(least, float64(reply.Reused)/float64(reply.Prompt))
		}
	}
	return least
}

// right counts the answers that are right.
func (r *realRun) right() (n int) {
	for _, chat := range r.replies {
		for i := range chat {
			if chat[i].Right {
				n++
			}
		}
	}
	return n
}

// pages adds a count of all pools.
func (r *realRun) pages(of func(*inspect.PoolStats) int64) string {
	n := int64(0)
	for i := range r.stats.Pools {
		n += of(&r.stats.Pools[i])
	}
	return report.Count(n)
}

// median is the median time to the first token.
func (r *realRun) median() time.Duration {
	var all []time.Duration
	for _, chat := range r.replies {
		for i := range chat {
			all = append(all, chat[i].First)
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}
