package daemon

import (
	"context"
	"hash/maphash"
	"time"
	"unsafe"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
)

// fetch is a question to the store for a prompt, which goes on beside the sessions.
type fetch struct {
	ended time.Time // zero: under way
}

const (
	// maxFetches bounds the questions at a time, and those whose answers nobody has taken.
	maxFetches = 64
	// fetchKept is how long it is known that the store was asked.
	fetchKept = 10 * time.Second
)

// fetching tells whether the store is being asked for a prompt, and asks it the first time. After
// it has answered, the next call with the prompt returns false: what came is in memory. So it
// does if too many are under way.
func (in *instance) fetching(p kvactor.Prefix, limit time.Duration) bool {
	key := in.keyOf(&p)
	in.mu.Lock()
	defer in.mu.Unlock()
	if f := in.fetches[key]; f != nil {
		if f.ended.IsZero() {
			return true
		}
		delete(in.fetches, key)
		return false
	}
	if len(in.fetches) >= maxFetches {
		in.forgetFetches()
	}
	if len(in.fetches) >= maxFetches || in.ctx.Err() != nil {
		return false
	}
	f := &fetch{}
	in.fetches[key] = f
	p.Tokens = append([]kvactor.Token(nil), p.Tokens...) // the session reads its next request
	in.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(in.ctx, limit)
		defer cancel()
		_, err := actors.StoreOf(in.engine.Actors()).Fetch(ctx, p)
		_ = in.note(err) // what has not come is a miss
		in.mu.Lock()
		f.ended = time.Now()
		in.mu.Unlock()
	})
	return true
}

// forgetFetches forgets answers that nobody has asked for in time.
func (in *instance) forgetFetches() {
	for key, f := range in.fetches {
		if !f.ended.IsZero() && time.Since(f.ended) > fetchKept {
			delete(in.fetches, key)
		}
	}
}

// keyOf is a hash of a prompt. Two prompts with one hash would only wait for each other.
func (in *instance) keyOf(p *kvactor.Prefix) uint64 {
	var h maphash.Hash
	h.SetSeed(in.seed)
	h.WriteString(p.Namespace.Salt)
	h.WriteByte(0)
	h.WriteString(p.Namespace.LoRA)
	for _, item := range p.Multimodal {
		h.Write(item.Hash[:])
	}
	if n := len(p.Tokens); n > 0 {
		h.Write(unsafe.Slice((*byte)(unsafe.Pointer(&p.Tokens[0])), n*tokenBytes))
	}
	return h.Sum64()
}
