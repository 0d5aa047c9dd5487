package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// engines are the instances of a daemon, by fingerprint. A fingerprint that no instance has gets
// one, in the place of one that has no session if all places are taken: that of the longest
// time without one.
type engines struct {
	config *Config

	mu     sync.Mutex
	closed bool
	serial int
	list   map[string]*instance
}

// acquire returns the engine for a session, which the session releases.
func (e *engines) acquire(ctx context.Context, o *wire.Open) (*instance, *wire.Error) {
	g, wrong := newGeometry(o, e.config.Cache)
	if wrong != nil {
		return nil, wrong
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errorf("closed", "the daemon is stopping")
	}
	key := "shared " + o.GetFingerprint()
	if o.GetPrivate() {
		key = fmt.Sprintf("private %d", e.serial) // serial grows with each instance
	}
	if in := e.list[key]; in != nil {
		switch {
		case in.broken.Load() && in.sessions > 0:
			return nil, errorf("failed", "the engine has failed; its other sessions have to end first")
		case in.geometry.text != g.text && in.sessions > 0:
			return nil, errorf(codeFingerprint, "sessions with this fingerprint have other groups: %s, not %s", in.geometry.text, g.text)
		case !in.broken.Load() && in.geometry.text == g.text:
			in.sessions++
			return in, nil
		}
		e.end(ctx, in)
	}
	if wrong := e.makeRoom(ctx); wrong != nil {
		return nil, wrong
	}
	in, wrong := openInstance(ctx, e.config, g, o, e.config.MemoryBytes/int64(e.config.Engines))
	if wrong != nil {
		return nil, wrong
	}
	in.key, in.serial, in.sessions = key, e.serial, 1
	e.serial++
	e.list[key] = in
	e.config.Log.Info("engine opened", "engine", in.serial, "client", o.GetName(), "pools", len(in.pools))
	return in, nil
}

// makeRoom ends an engine without sessions if there are as many as may be.
func (e *engines) makeRoom(ctx context.Context) *wire.Error {
	if len(e.list) < e.config.Engines {
		return nil
	}
	var idle *instance
	for _, in := range e.list {
		if in.sessions == 0 && (idle == nil || in.idleSince.Before(idle.idleSince)) {
			idle = in
		}
	}
	if idle == nil {
		return errorf(codeFingerprint, "the daemon serves other models: all of its %d engines have sessions", e.config.Engines)
	}
	e.end(ctx, idle)
	return nil
}

// end closes an engine that has no sessions.
func (e *engines) end(ctx context.Context, in *instance) {
	delete(e.list, in.key)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := in.close(limited)
	e.config.Log.Info("engine closed", "engine", in.serial, "error", err)
}

// closeTime is how long an engine has to save what it has to.
const closeTime = 20 * time.Second

// release ends the use of an engine by a session.
func (e *engines) release(in *instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in.sessions--
	in.idleSince = time.Now()
	if in.sessions == 0 && e.list[in.key] == in && (in.private || in.broken.Load()) {
		e.end(context.Background(), in)
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
