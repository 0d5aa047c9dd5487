package main

import (
	"context"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/messages"
)

// watchFlags say how a server may be watched.
type watchFlags struct {
	observer.Flags
	showTokens bool
	noLookup   bool
	pprof      bool
}

func (f *watchFlags) add(flags *pflag.FlagSet) {
	f.Add(flags)
	flags.BoolVar(&f.showTokens, "show-tokens", false, "tell tokens and salts at /events")
	flags.BoolVar(&f.noLookup, "no-lookup", false, "do not let visitors of the page look prompts up")
	flags.BoolVar(&f.pprof, "pprof", false,
		"serve profiles at /debug/pprof/; they show the memory of the process")
}

// options are those of an observer.
func (f *watchFlags) options() (o observer.Options, err error) {
	o = observer.Options{Events: wire.Default(), ShowTokens: f.showTokens, NoLookup: f.noLookup,
		Pprof: f.pprof}
	return o, f.Read(&o.Events, &o.Aliases)
}

// observe prepares the engine of a service for being watched.
func (s *service) observe() error {
	o, err := s.flags.watch.options()
	if err != nil {
		return err
	}
	o.Title, o.Encode = s.name, s.words.Encode
	o.EncodeChat = func(text string) ([]messages.Token, error) {
		return s.words.Encode(s.form.Write([]token.Message{{Role: "user", Text: text}}))
	}
	o.Waiting = func() int { return s.scheduler.Counters().Waiting }
	o.Preemptions = func() int64 { return s.scheduler.Counters().Preemptions }
	o.Generated = func() int64 { return s.scheduler.Counters().GeneratedTokens }
	s.observer = observer.New(o)
	c := &s.flags.config
	c.Options = append(c.Options, s.observer.EngineOptions()...)
	c.Adjust, c.Trace = s.observer.Adjust, s.observer.Transfer
	return nil
}

// mountPage adds the page to the paths of the API, and returns what ends its streams: a
// server that shuts down would wait for them.
func (s *service) mountPage(ctx context.Context) (end func()) {
	ctx, end = context.WithCancel(ctx)
	mount := func(pattern string, h http.Handler) {
		s.api.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			during, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			h.ServeHTTP(w, r.WithContext(during))
		}))
	}
	s.observer.Page().Register(mount, "GET /healthz") // the API has its own
	if info := s.observer.ServerInfo(); info != nil {
		mount("GET /server_info", info)
	}
	return end
}
