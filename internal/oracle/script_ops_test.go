package oracle_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// headCounts reads one number for all layers, or a list of one for each.
type headCounts []int

// UnmarshalJSON repeats a number once; open repeats it over the layers.
func (h *headCounts) UnmarshalJSON(text []byte) error {
	var one int
	if json.Unmarshal(text, &one) == nil {
		*h = headCounts{one}
		return nil
	}
	return json.Unmarshal(text, (*[]int)(h))
}

// modelField is the part of model that the examples use.
type modelField struct {
	Layers  int
	KVHeads headCounts `json:"kv_heads"`
	HeadDim int        `json:"head_dim"`
	State   *struct {
		Layers []int
		Bytes  int64
	}
}

// cacheField is the part of cache that the examples use.
type cacheField struct {
	TokensPerBlock int   `json:"tokens_per_block"`
	Windows        []int `json:"max_attention_window"`
	Events         int   `json:"event_buffer_max_size"`
	Interval       int   `json:"state_checkpoint_interval"`
	UVM            bool  `json:"use_uvm"`
}

// attach gives a model the store of its name and geometry.
func (s *script) attach(l line, c *oracle.Config) {
	var field struct{ Name, Save string }
	_ = json.Unmarshal(l.Store, &field)
	if s.stores == nil {
		s.stores = map[string]*oracle.Store{}
	}
	name := fmt.Sprintf("%s %s %s", field.Name, l.Model, l.Cache)
	if s.stores[name] == nil {
		s.stores[name] = oracle.NewStore()
	}
	s.store = s.stores[name]
	save := map[string]oracle.SavePolicy{"commit": oracle.SaveOnCommit,
		"host_evict": oracle.SaveHostEvict}[field.Save]
	c.Store = &oracle.StoreConfig{Store: s.store, Save: save}
}

// open reads the parts of model, cache and pages that the examples use.
func (s *script) open(l line) (object, error) {
	var model modelField
	_ = json.Unmarshal(l.Model, &model)
	cache := cacheField{Windows: []int{4096}}
	_ = json.Unmarshal(l.Cache, &cache)
	if cache.UVM {
		return nil, refusals.New(messages.ErrConfigInvalid, "use_uvm is not supported")
	}
	c := oracle.Config{
		TokensPerBlock: cache.TokensPerBlock, MaxSeqLen: 4096, SecondaryOffloadMinPriority: 35,
		OnboardBlocks: true,
		BlockReuse:    true, PartialReuse: true, CopyOnPartialReuse: true, EventLimit: cache.Events,
		CheckpointInterval: cache.Interval, Clock: func() time.Duration { return s.now },
	}
	for _, p := range poolsOf(model, cache) {
		var named map[string]struct{ Primary, Secondary int }
		var both struct{ Primary, Secondary int }
		_ = json.Unmarshal(l.Pages, &both)
		if json.Unmarshal(l.Pages, &named) == nil {
			both = named[p.Name]
		}
		p.Primary, p.Secondary = both.Primary, both.Secondary
		c.Pools = append(c.Pools, p)
	}
	if l.Store != nil {
		s.attach(l, &c)
	}
	s.o = oracle.New(c)
	s.pools = s.o.Pools()
	s.states = map[messages.PoolID]bool{}
	for i, p := range c.Pools {
		s.states[messages.PoolID(i)] = p.State
	}
	s.sequences, s.pins = map[string]*scripted{}, map[string]messages.PinID{}
	return object{"pools": s.poolList()}, nil
}

// poolsOf groups the layers: by window, the attention layers, then the states.
func poolsOf(model modelField, cache cacheField) (pools []oracle.PoolConfig) {
	layers, heads := map[int][]int{}, 0
	for i := range model.Layers {
		if h := model.KVHeads[i%len(model.KVHeads)]; h > 0 {
			w := cache.Windows[i%len(cache.Windows)]
			layers[w], heads = append(layers[w], i), h
		}
	}
	for _, w := range slices.Sorted(keys(layers)) {
		p := oracle.PoolConfig{Window: w, KVHeads: heads, Layers: layers[w]}
		p.Name = fmt.Sprintf("w%dh%d", w, heads)
		if w >= 4096 {
			p.Window, p.Name = 0, fmt.Sprintf("wfullh%d", heads)
		}
		p.PageBytes = int64(len(p.Layers) * 2 * heads * model.HeadDim * cache.TokensPerBlock * 2)
		pools = append(pools, p)
	}
	if st := model.State; st != nil {
		slices.Sort(st.Layers)
		pools = append(pools, oracle.PoolConfig{Name: "state", State: true, Layers: st.Layers,
			PageBytes: int64(len(st.Layers)) * st.Bytes})
	}
	return pools
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (s *script) poolList() (list []object) {
	for _, p := range s.pools {
		o := object{
			"name": p.Name, "window": nil, "kv_heads": p.KVHeads, "layers": p.Layers,
			"page_bytes":    p.PageBytes,
			"primary_pages": p.PrimaryPages, "secondary_pages": p.SecondaryPages,
		}
		if p.Window > 0 {
			o["window"] = p.Window
		}
		if s.states[p.ID] {
			o["kv_heads"] = nil
		}
		list = append(list, o)
	}
	return list
}

func (s *script) admit(l line) (object, error) {
	a, err := s.admitBatch(line{Op: "admit_batch", Requests: []line{l}})
	if err != nil {
		return nil, err
	}
	only := a["results"].([]any)[0].(object)
	if e, refused := only["error"].(error); refused {
		return nil, e
	}
	return only, nil
}

// admitBatch admits and, unless the prefill is manual, commits chunk by chunk.
func (s *script) admitBatch(l line) (object, error) {
	ctx := context.Background()
	results := make([]any, len(l.Requests))
	var requests []messages.AdmitRequest
	var places []int
	fresh := map[string]bool{}
	for i, r := range l.Requests {
		if s.sequences[r.Seq] != nil || fresh[r.Seq] {
			results[i] = object{"error": error(refusals.New("duplicate_sequence",
				"sequence %q is running already", r.Seq))}
			continue
		}
		fresh[r.Seq] = true
		requests = append(requests, r.request())
		places = append(places, i)
	}
	answers, err := s.o.AdmitBatch(ctx, requests)
	for i, a := range answers {
		r := l.Requests[places[i]]
		if a.Err != nil {
			results[places[i]] = object{"error": a.Err}
			continue
		}
		s.sequences[r.Seq] = &scripted{a.Sequence, len(requests[i].Tokens), r.Prefill == "manual"}
		if r.Prefill != "manual" {
			for _, position := range append(a.Checkpoints, len(requests[i].Tokens)) {
				s.commit(a.Sequence, position)
			}
		}
		answer := object{
			"op": "admit", "ok": true, "seq": r.Seq, "reused_tokens": a.ReusedTokens,
			"why":   string(a.MissReason),
			"reuse": s.reuse(a), "tables": s.tablesNow(a.Sequence),
		}
		if s.recurrent() {
			answer["attention_tokens"], answer["checkpoints"] = a.AttentionTokens,
				append([]int{}, a.Checkpoints...)
		}
		results[places[i]] = answer
	}
	if l.Op == "admit_batch" && len(l.Requests) > 1 {
		for i, r := range results {
			if e, refused := r.(object)["error"].(error); refused {
				results[i] = failed("admit", e)
			}
		}
	}
	return object{"results": results}, err
}

func (s *script) commit(id messages.SequenceID, computed int) {
	r, err := s.o.Commit(context.Background(),
		[]messages.CommitStep{{Sequence: id, Computed: computed}})
	if err != nil || r[0].Err != nil {
		panic(fmt.Sprint(err, r[0].Err))
	}
}

func (s *script) append(l line) (object, error) {
	ctx := context.Background()
	var steps []messages.AppendStep
	for _, x := range l.Steps {
		step := messages.AppendStep{Sequence: s.id(x.Seq), Tokens: x.Tokens, Beams: x.Beams}
		if q := s.sequences[x.Seq]; q != nil && !q.manual {
			step.Computed = q.tokens + max(len(x.Tokens), min(1, len(x.Beams))) - 1
		}
		steps = append(steps, step)
	}
	answers, err := s.o.Append(ctx, steps)
	var results []any
	for i, a := range answers {
		x := l.Steps[i]
		if a.Err != nil {
			o := failed("", a.Err)
			delete(o, "op")
			o["seq"] = x.Seq
			results = append(results, o)
			continue
		}
		s.sequences[x.Seq].tokens += max(len(x.Tokens), min(1, len(x.Beams)))
		results = append(results, object{"seq": x.Seq, "ok": true, "new_pages": s.byPool(a.NewPages)})
	}
	return object{"results": results}, err
}

// recurrent reports whether the model has recurrent layers.
func (s *script) recurrent() bool {
	return slices.Contains(slices.Collect(maps.Values(s.states)), true)
}

func (s *script) byPool(pages [][]messages.PageID) object {
	o := object{}
	for i, p := range s.pools {
		o[p.Name] = pages[i]
	}
	return o
}

func (s *script) tablesNow(id messages.SequenceID) object {
	t, err := s.o.TablesOf(context.Background(), id)
	if err != nil {
		panic(err)
	}
	return s.tables(t)
}

func (s *script) tables(t messages.Tables) object {
	o := object{}
	for i := range t {
		o[s.pools[i].Name] = t[i]
		if len(t[i]) == 1 {
			o[s.pools[i].Name] = t[i][0]
		}
	}
	return o
}

func (s *script) reuse(a messages.Admitted) object {
	o := object{}
	for i, r := range a.Reuse {
		o[s.pools[i].Name] = object{"full": r.Full, "partial": r.Partial, "how": string(r.PartialReuse),
			"onboarded": r.Onboarded}
	}
	return o
}

func countsOf(c inspect.TierPages) object {
	return object{"total": c.Total, "used": c.Used, "cached": c.Cached, "free": c.Free}
}

func (s *script) stats(st inspect.Stats) object {
	pools, counters := object{}, object{}
	for _, p := range st.Pools {
		pools[p.Name] = object{"primary": countsOf(p.Primary), "secondary": countsOf(p.Secondary)}
		c := p.PoolCounters
		counter := object{
			"allocated_pages": c.AllocatedPages, "reused_full": c.ReusedFull,
			"reused_partial": c.ReusedPartial,
			"missed":         c.Missed, "evicted": c.Evicted, "offloaded": c.Offloaded,
			"onboarded": c.Onboarded,
			"dropped":   c.Dropped, "bytes_offloaded": c.BytesOffloaded, "bytes_onboarded": c.BytesOnboarded,
		}
		if p.Name == "state" {
			counter["checkpoints"], counter["checkpoints_skipped"] = c.Checkpoints, c.CheckpointsSkipped
		}
		counters[p.Name] = counter
	}
	return object{"pools": pools, "counters": object{
		"requests": st.Requests, "prompt_tokens": st.PromptTokens, "reused_tokens": st.ReusedTokens,
		"pools": counters,
	}}
}

func (s *script) eventList(b kvevents.EventBatch) object {
	list := []any{}
	for _, e := range b.Events {
		o := object{"id": e.ID, "type": string(e.Type), "pool": s.pools[e.Pool].Name}
		switch e.Type {
		case kvevents.EventCreated:
			o["primary_pages"], o["secondary_pages"] = e.PrimaryPages, e.SecondaryPages
		case kvevents.EventStored:
			o["parent"] = nil
			if e.HasParent {
				o["parent"] = hex.EncodeToString(e.Parent[:])
			}
			var blocks []any
			for _, x := range e.Blocks {
				blocks = append(blocks, object{
					"hash": hex.EncodeToString(x.Hash[:]), "tokens": x.Tokens, "tier": x.Tier.String(),
					"priority": x.Priority,
				})
			}
			o["blocks"] = blocks
		case kvevents.EventRemoved:
			var hashes []string
			for _, h := range e.Hashes {
				hashes = append(hashes, hex.EncodeToString(h[:]))
			}
			o["hashes"] = hashes
		case kvevents.EventUpdated:
			o["hash"] = hex.EncodeToString(e.Hash[:])
			if e.TierChanged {
				o["tier"] = []string{e.OldTier.String(), e.NewTier.String()}
			} else {
				o["priority"] = []int{int(e.OldPriority), int(e.NewPriority)}
			}
		case kvevents.EventCleared:
			delete(o, "pool")
		}
		list = append(list, o)
	}
	return object{"events": list, "lost": b.Lost}
}
