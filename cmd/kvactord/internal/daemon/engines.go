package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// engines are the instances of a daemon, by fingerprint and groups. A model that no instance has
// gets one, in the place of one that has no session if all places are taken: that of the longest
// time without one.
type engines struct {
	config *Config
	prefix string // of the names of engines: another one in each run of the daemon
	// change is held while an engine is opened or closed, which takes memory or gives it back
	// and may take seconds. The mutex is not held then: others go on.
	change chan struct{}

	mu     sync.Mutex
	closed bool
	serial int
	list   map[string]*instance
}

func newEngines(c *Config) engines {
	return engines{config: c, prefix: rand.Text()[:12], change: make(chan struct{}, 1),
		list: map[string]*instance{}}
}

// acquire returns the engine for a session, which the session releases.
func (e *engines) acquire(ctx context.Context, o *wire.Open) (*instance, *wire.Error) {
	g, wrong := newGeometry(o, e.config.Cache)
	if wrong != nil {
		return nil, wrong
	}
	if in, wrong := e.join(o, g); in != nil || wrong != nil {
		return in, wrong
	}
	select {
	case e.change <- struct{}{}:
		defer func() { <-e.change }()
	case <-ctx.Done():
		return nil, refusal(ctx.Err())
	}
	if in, wrong := e.join(o, g); in != nil || wrong != nil { // opened meanwhile
		return in, wrong
	}
	if wrong := e.makeRoom(ctx, o, g); wrong != nil {
		return nil, wrong
	}
	in, wrong := openInstance(ctx, e.config, g, o, e.config.MemoryBytes/int64(e.config.Engines))
	if wrong != nil {
		return nil, wrong
	}
	in.fingerprint, in.sessions = o.GetFingerprint(), 1
	e.insert(in)
	e.config.Log.Info("engine opened", "engine", in.serial, "client", o.GetName(), "pools",
		len(in.pools))
	return in, nil
}

// insert gives an instance its number and its place in the list.
func (e *engines) insert(in *instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in.key = keyOf(in.fingerprint, in.geometry)
	if in.private {
		in.key = fmt.Sprintf("private %d", e.serial)
	}
	in.serial = e.serial
	in.name = fmt.Sprintf("%s.%d", e.prefix, e.serial)
	e.serial++
	e.list[in.key] = in
}

// keyOf is the key of an engine that sessions share.
func keyOf(fingerprint string, g *geometry) string {
	return "shared " + g.text + "; " + fingerprint
}

// join returns the engine that sessions of a model share; nil: one has to be opened.
func (e *engines) join(o *wire.Open, g *geometry) (*instance, *wire.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errorf("closed", "the daemon is stopping")
	}
	if o.GetPrivate() {
		return nil, nil
	}
	for _, in := range e.list {
		if in.private || in.sessions == 0 || in.fingerprint != o.GetFingerprint() {
			continue
		}
		switch {
		case in.broken.Load():
			return nil, errorf("failed", "the engine has failed; its other sessions have to end first")
		case in.geometry.text != g.text:
			return nil,
				errorf(codeFingerprint, "sessions with this fingerprint have other groups: %s, not %s",
					brief(in.geometry.text), brief(g.text))
		}
	}
	in := e.list[keyOf(o.GetFingerprint(), g)]
	if in == nil || in.broken.Load() {
		return nil, nil
	}
	in.sessions++
	return in, nil
}

// makeRoom ends an engine that has failed and stands in the place of a new one, or, if there are
// as many as may be, one without sessions.
func (e *engines) makeRoom(ctx context.Context, o *wire.Open, g *geometry) *wire.Error {
	e.mu.Lock()
	leaving := e.list[keyOf(o.GetFingerprint(), g)]
	if o.GetPrivate() {
		leaving = nil
	}
	if leaving == nil && len(e.list) >= e.config.Engines {
		for _, in := range e.list {
			if in.sessions == 0 && (leaving == nil || in.idleSince.Before(leaving.idleSince)) {
				leaving = in
			}
		}
		if leaving == nil {
			e.mu.Unlock()
			return errorf(codeFingerprint,
				"the daemon serves other models: all of its %d engines have sessions", e.config.Engines)
		}
	}
	if leaving != nil {
		delete(e.list, leaving.key)
	}
	e.mu.Unlock()
	if leaving != nil {
		e.end(ctx, leaving, "a session of another model needs its place")
	}
	return nil
}

// end closes an engine that has no sessions and has left the list. The caller holds change.
func (e *engines) end(ctx context.Context, in *instance, why string) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := in.close(limited)
	e.config.Log.Info("engine closed", "engine", in.serial, "because", why, "error", err)
}

// closeTime is how long an engine has to save what it has to.
const closeTime = 20 * time.Second

// release ends the use of an engine by a session.
func (e *engines) release(in *instance) {
	last := in.private || in.broken.Load()
	if last {
		e.change <- struct{}{}
		defer func() { <-e.change }()
	}
	e.mu.Lock()
	in.sessions--
	in.idleSince = time.Now()
	ends := last && in.sessions == 0 && e.list[in.key] == in
	if ends {
		delete(e.list, in.key)
	}
	e.mu.Unlock()
	if ends {
		e.end(context.Background(), in, "its last session has ended")
	}
}

// latest is the engine that was opened last, which the page shows; nil: there is none.
func (e *engines) latest() *instance {
	e.mu.Lock()
	defer e.mu.Unlock()
	var last *instance
	for _, in := range e.list {
		if last == nil || in.serial > last.serial {
			last = in
		}
	}
	return last
}

// sessionsOf is the number of sessions of an engine.
func (e *engines) sessionsOf(in *instance) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return in.sessions
}

// close closes all engines, when their sessions have ended.
func (e *engines) close(ctx context.Context) error {
	e.change <- struct{}{}
	defer func() { <-e.change }()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	var problems []error
	for _, in := range e.list {
		problems = append(problems, in.close(ctx))
	}
	clear(e.list)
	return errors.Join(problems...)
}
