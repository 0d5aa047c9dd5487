package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/fleet"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/cmd/demo/internal/workload"
	"github.com/kvactor/kvactor/cmd/internal/storeurl"
	"github.com/kvactor/kvactor/offloader/stores"
)

// fleetFlags are the flags of `demo fleet`.
type fleetFlags struct {
	trace                    string // "": the generated workload
	engines, limit           int
	deviceTokens, hostTokens int // of each engine
	store                    storeFlag
	storeGbit                float64
	model, save, only        string
	seed                     uint64
	kill, json               bool

	requests, blockTokens int    // of the trace
	nonce                 string // tells the keys of this command in a store from others'
	runs                  int
}

func fleetCommand() *cobra.Command {
	var f fleetFlags
	c := &cobra.Command{
		Use:   "fleet [TRACE]",
		Short: "Replay a trace through several engines behind one router, over one store",
		Long: `fleet runs several engines behind a router. The router follows their events, so it
knows which blocks of a prompt each of them has, and sends a request to where the
fewest tokens have to be computed before its first one, those of the requests that
wait there included. The engines may share a store: what one has computed the others
fetch.

A trace, or a generated workload if there is none, is replayed four times: with
engines that share nothing and requests sent at random, with the router, with the
store, and with both; and again with one engine that is killed after half of the
requests. What it was serving is sent to others.

Engines are goroutines of this program over a store in its memory, and what is counted
is a function of the seed.

--model says what pools the engines have: tiny has full attention and stands for
Llama-3.1-8B; hybrid has five layers with a window to one with full attention, and
stands for Gemma-3-12B; sliding has windows alone, and stands for Mistral-7B-v0.1.
The router follows the events of all pools.

Pages are real but small, 4 bytes for each token and layer; what is reused is checked
byte by byte. Bytes and times are those of the model on an H100 for each engine.`,
		Example: `  demo fleet
  demo fleet trace.jsonl.gz --engines 8 --limit 5000 --only routing,both
  demo fleet --model hybrid --only routing,both
  demo fleet --store valkey://127.0.0.1:6379 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return statusError{err, statusUsage}
			}
			if err := f.open(args); err != nil {
				return err
			}
			return runFleet(c, &f)
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.engines, "engines", 4, "`number` of engines")
	flags.IntVar(&f.limit, "limit", 1000, "stop after so many `requests`; 0: all of a trace")
	flags.IntVar(&f.deviceTokens, "device-tokens", 300_000,
		"`tokens` that each pool of an engine holds on the device")
	flags.IntVar(&f.hostTokens, "host-tokens", 1_000_000,
		"`tokens` that each pool of an engine holds in host memory")
	flags.StringVar(&f.store.URL, "store", "",
		"`URL` of a store of the engines (default: memory); its objects stay")
	flags.Float64Var(&f.storeGbit, "store-gbit", 100,
		"modelled `Gbit/s` between an engine and the store")
	flags.StringVar(&f.model, "model", fleet.Models[0],
		"`shape` of the pages: "+strings.Join(fleet.Models, ", "))
	flags.StringVar(&f.save, "save", "commit",
		"`when` a page is saved: commit, when it is computed; reuse, when it is used again")
	flags.StringVar(&f.only, "only", "none,routing,store,both",
		"which `runs`, of these; both: routing and store")
	flags.Uint64Var(&f.seed, "seed", 1, "`seed` of the random routing and of the generated workload")
	flags.BoolVar(&f.kill, "kill", true,
		"run everything again with one engine killed after half of the requests")
	flags.BoolVar(&f.json, "json", false, "print one JSON object for each run instead of tables")
	return c
}

// variant is what a fleet shares, under its name in --only.
type variant struct {
	name, title    string
	column         string // of the tables, which are to fit 80 columns
	routing, store bool
}

var variants = []variant{
	{"none", "neither", "neither", false, false},
	{"routing", "routing", "routing", true, false},
	{"store", "store", "store", false, true},
	{"both", "routing and store", "both", true, true},
}

// check refuses values that no fleet can have.
func (f *fleetFlags) check() error {
	if err := cmp.Or(
		within("engines", f.engines, 1, 64), atLeast("limit", f.limit, 0),
		atLeast("device-tokens", f.deviceTokens, 1), atLeast("host-tokens", f.hostTokens, 0),
	); err != nil {
		return err
	}
	switch {
	case !(f.storeGbit > 0):
		return fmt.Errorf("--store-gbit %g is not above 0", f.storeGbit)
	case f.save != "commit" && f.save != "reuse":
		return fmt.Errorf("--save %s is none of commit, reuse", f.save)
	case !slices.Contains(fleet.Models, f.model):
		return fmt.Errorf("--model %s is none of %s", f.model, strings.Join(fleet.Models, ", "))
	case f.kill && f.engines < 2:
		return errors.New("--kill goes with two engines or more")
	}
	for _, name := range strings.Split(f.only, ",") {
		if !slices.ContainsFunc(variants, func(v variant) bool { return v.name == name }) {
			return fmt.Errorf("--only %s is none of none, routing, store, both", name)
		}
	}
	return nil
}

// workloadBlock is the tokens of a block with the generated workload, which has about
// five requests to a conversation.
const (
	workloadBlock    = 32
	requestsEach     = 5
	workloadRequests = 1000
)

// open finds what to replay and counts its requests.
func (f *fleetFlags) open(args []string) error {
	if len(args) > 0 {
		f.trace = args[0]
	}
	if f.trace == "" {
		f.blockTokens, f.requests = workloadBlock, workload.Requests([]*workload.Users{f.users()})
		return nil
	}
	t, err := replay.Load(f.trace, f.limit)
	if err != nil {
		return err
	}
	f.requests, f.blockTokens = len(t.Requests), t.TokensPerBlock
	return nil
}

// users are the conversations of the generated workload.
func (f *fleetFlags) users() *workload.Users {
	plan, requests := workload.Default(), f.limit
	if requests == 0 {
		requests = workloadRequests
	}
	plan.Conversations, plan.Seed = max(1, requests/requestsEach), f.seed
	return workload.Share(plan, 1)[0]
}

// source opens the requests for one run.
func (f *fleetFlags) source() (_ serve.Source, close func() error, err error) {
	if f.trace == "" {
		return f.users(), func() error { return nil }, nil
	}
	reader, err := trace.Open(f.trace)
	if err != nil {
		return nil, nil, err
	}
	return &replay.Arrivals{Reader: reader, Limit: f.limit}, reader.Close, nil
}

// runFleet runs all variants, without and with a failure.
func runFleet(c *cobra.Command, f *fleetFlags) error {
	f.nonce = rand.Text()
	t := fleetTables{command: c, flags: f}
	kills := []bool{false, true}
	if !f.kill {
		kills = kills[:1]
	}
	for _, kill := range kills {
		for _, v := range variants {
			if !slices.Contains(strings.Split(f.only, ","), v.name) {
				continue
			}
			r, err := f.run(c, v, kill)
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %w", v.title, err), t.soFar())
			}
			t.add(v, r)
			if f.json {
				if err := json.NewEncoder(c.OutOrStdout()).Encode(r); err != nil {
					return err
				}
			}
		}
	}
	if !f.json {
		if err := t.print(); err != nil {
			return err
		}
	}
	if t.wrong() {
		return errProblems
	}
	return nil
}

// run runs one fleet.
func (f *fleetFlags) run(c *cobra.Command, v variant, kill bool) (_ *fleet.Result, failed error) {
	source, closeSource, err := f.source()
	if err != nil {
		return nil, err
	}
	defer func() { failed = errors.Join(failed, closeSource()) }()
	store, closeStore, err := f.openStore(c, v)
	if err != nil {
		return nil, err
	}
	defer func() { failed = errors.Join(failed, closeStore()) }()
	label := v.column
	if kill {
		label += ", kill"
	}
	progress := report.NewProgress(c.ErrOrStderr(), label, f.requests)
	note := func(s fleet.Status) string { return fmt.Sprintf("%.1f %% hit", 100*s.HitRate) }
	last := fleet.Status{}
	r, err := fleet.Run(c.Context(), fleet.Config{
		Engines: f.engines, Settings: f.settings(), Store: store, Source: source,
		Routing: v.routing, Seed: f.seed, KillAfter: f.requests / 2, Kill: kill,
		Progress: func(s fleet.Status) { last = s; progress.Set(s.Answered, note(s)+serving(s)) },
	})
	if err != nil {
		return nil, err
	}
	progress.Done(r.Answered, note(last))
	r.Name, r.Trace, r.Engines, r.Seed = v.name, filepath.Base(f.trace), f.engines, f.seed
	r.Model = fleet.Modelled(f.model)
	if f.trace == "" {
		r.Trace = "generated"
	}
	return r, nil
}

// serving says how many requests run, in as few words with sixty engines as with two: a bar
// has one line of a terminal.
func serving(s fleet.Status) string {
	running := 0
	for _, n := range s.Flights {
		running += max(0, n)
	}
	return fmt.Sprintf(", %d running", running)
}

// settings are those of the engines of a run, whose pages in a store no other run finds.
func (f *fleetFlags) settings() fleet.Settings {
	f.runs++
	s := fleet.Settings{
		Shape: f.model, TokensPerBlock: f.blockTokens, Pages: max(1, f.deviceTokens/f.blockTokens),
		HostPages: f.hostTokens / f.blockTokens, Model: fmt.Sprintf("demo fleet %s, run %d", f.nonce,
			f.runs),
		Save: actors.SaveOnCommit, StoreGbit: f.storeGbit,
	}
	if f.save == "reuse" {
		s.Save = actors.SaveOnReuse
	}
	return s
}

// openStore opens the store of a run; nil: it has none.
func (f *fleetFlags) openStore(c *cobra.Command, v variant) (store stores.Store, done func() error,
	err error) {
	done = func() error { return nil }
	switch {
	case v.store && f.store.URL != "":
		if store, err = storeurl.Open(c.Context(), f.store.URL); err != nil {
			return nil, nil, statusError{fmt.Errorf("--store: %w", err), statusUsage}
		}
		done = store.Close
	case v.store:
		store = &stores.Memory{}
	}
	return store, done, nil
}
