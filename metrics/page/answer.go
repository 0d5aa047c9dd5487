package page

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Answer is what /stats says. It has no tokens, salts or names of blocks.
type Answer struct {
	Title        string       `json:"title"`
	Time         float64      `json:"time"` // seconds since 1970
	Requests     int64        `json:"requests"`
	PromptTokens int64        `json:"prompt_tokens"`
	ReusedTokens int64        `json:"reused_tokens"`
	ThrashTokens int64        `json:"thrash_tokens"` // see inspect.Stats
	Sequences    int          `json:"sequences"`
	Rounds       int64        `json:"rounds"`
	Restarts     int64        `json:"restarts"`
	Pools        []PoolAnswer `json:"pools"`
	Lookup       bool         `json:"lookup"` // prompts can be looked up
	// Calls has the latency of the calls of the last second, by the name of the call.
	Calls     map[string]Latency `json:"calls,omitempty"`
	Transfers []Transfer         `json:"transfers,omitempty"` // since the answer before, at most 256
	Tree      *Tree              `json:"tree,omitempty"`
}

// PoolAnswer is one pool in an Answer.
type PoolAnswer struct {
	Name           string `json:"name"`
	Window         int    `json:"window"` // tokens; 0: none
	PageBytes      int64  `json:"page_bytes"`
	Primary        Pages  `json:"primary"`
	Secondary      Pages  `json:"secondary"`
	Evicted        int64  `json:"evicted"`
	Offloaded      int64  `json:"offloaded"`
	Onboarded      int64  `json:"onboarded"`
	Dropped        int64  `json:"dropped"`
	BytesOffloaded int64  `json:"bytes_offloaded"`
	BytesOnboarded int64  `json:"bytes_onboarded"`
}

// Pages are the pages of one tier.
type Pages struct {
	Used   int `json:"used"`
	Cached int `json:"cached"`
	Free   int `json:"free"`
	// Cells describes pages at equal distances, a character each: see cell.
	Cells string `json:"cells,omitempty"`
}

// Tree is the top of the prefix tree.
type Tree struct {
	// Nodes are [parent, depth, blocks, blocks of the node and below, stamp], as in
	// inspect.PrefixNode.
	Nodes    [][5]int `json:"nodes"`
	Counted  int      `json:"counted"`
	Complete bool     `json:"complete"`
}

// latest is the latest answer: readers that come within an interval share it.
type latest struct {
	at, treeAt time.Time
	answer     Answer // with the tree
	live       []byte // in JSON, without the tree unless that is new
	transfers  int64  // that have been told
	latency    window
}

// alphabet has a character for each kind of cell. None of them is escaped in JSON.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@["

// priorityClasses are the classes of priorities by their upper ends; what is above is the
// last class.
var priorityClasses = [...]messages.Priority{19, 34, 35, 79}

// ageClasses is the number of classes of ages: quarters of the oldest age of a cached page of the
// tier. A fixed number of uses would put all pages of a busy cache into one class.
const ageClasses = 4

// cell is the character of a page: its state, the class of its priority and that of its
// age, as alphabet[state + 4·priority + 20·age].
func cell(s inspect.PageSample, oldest uint64) byte {
	if s.State == inspect.PageFree {
		return alphabet[0]
	}
	priority := 0
	for priority < len(priorityClasses) && s.Priority > priorityClasses[priority] {
		priority++
	}
	age := 0
	for age < ageClasses-1 && s.Age > oldest*uint64(age+1)/ageClasses {
		age++
	}
	return alphabet[int(s.State)+4*priority+20*age]
}

// drawn describes the pages of a tier.
func drawn(samples []inspect.PageSample) string {
	oldest := uint64(0)
	for _, s := range samples {
		if s.State != inspect.PageFree && s.State != inspect.PageUsed {
			oldest = max(oldest, s.Age)
		}
	}
	text := make([]byte, 0, len(samples))
	for _, s := range samples {
		text = append(text, cell(s, oldest))
	}
	return string(text)
}

// fresh asks the engine, unless another request has just done so. It is called in turn.
func (p *Page) fresh(ctx context.Context) error {
	now := time.Now()
	l := &p.latest
	if !l.at.IsZero() && now.Sub(l.at) < interval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stats, view := inspect.ReadStats{},
		inspect.ReadOverview{Limits: inspect.OverviewLimits{Pages: cells}}
	if now.Sub(l.treeAt) >= treeInterval {
		view.Limits.Nodes = nodes
	}
	for _, request := range []messages.Request{&stats, &view} {
		if err := p.o.Source.Do(ctx, request); err != nil {
			return err
		}
	}
	if err := errors.Join(stats.Err, view.Err); err != nil {
		return err
	}
	a := p.describe(&stats.Stats, &view.Overview, now)
	if view.Limits.Nodes > 0 {
		a.Tree, l.treeAt = treeOf(&view.Overview), now
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if a.Tree == nil {
		a.Tree = l.answer.Tree
	}
	l.at, l.answer, l.live = now, a, text
	return nil
}

// describe makes an answer of what the engine and the recorder say.
func (p *Page) describe(s *inspect.Stats, o *inspect.Overview, now time.Time) Answer {
	a := Answer{
		Title: p.o.Title, Time: float64(now.UnixNano()) / 1e9, Requests: s.Requests,
		PromptTokens: s.PromptTokens,
		ReusedTokens: s.ReusedTokens, ThrashTokens: s.ThrashTokens, Sequences: s.Sequences,
		Rounds: s.Rounds, Restarts: s.Restarts, Pools: []PoolAnswer{},
		Lookup: !p.o.NoLookup,
	}
	for i := range s.Pools {
		a.Pools = append(a.Pools, p.pool(i, &s.Pools[i]))
		if i < len(o.Pools) {
			a.Pools[i].Primary.Cells, a.Pools[i].Secondary.Cells = drawn(o.Pools[i].Primary),
				drawn(o.Pools[i].Secondary)
		}
	}
	if r := p.o.Recorder; r != nil {
		a.Transfers, p.latest.transfers = r.since(p.latest.transfers)
		a.Calls = r.latencies(&p.latest.latency, now)
	}
	return a
}

func (p *Page) pool(i int, s *inspect.PoolStats) PoolAnswer {
	a := PoolAnswer{
		Name: s.Name, Evicted: s.Evicted, Offloaded: s.Offloaded, Onboarded: s.Onboarded,
		Dropped:        s.Dropped,
		BytesOffloaded: s.BytesOffloaded, BytesOnboarded: s.BytesOnboarded,
		Primary:   Pages{Used: s.Primary.Used, Cached: s.Primary.Cached, Free: s.Primary.Free},
		Secondary: Pages{Used: s.Secondary.Used, Cached: s.Secondary.Cached, Free: s.Secondary.Free},
	}
	if i < len(p.o.Pools) {
		a.Window, a.PageBytes = p.o.Pools[i].Window, p.o.Pools[i].PageBytes()
	}
	return a
}

func treeOf(o *inspect.Overview) *Tree {
	t := &Tree{Counted: o.Counted, Complete: o.Complete, Nodes: [][5]int{}}
	for _, n := range o.Nodes {
		t.Nodes = append(t.Nodes, [5]int{n.Parent, n.Depth, n.Blocks, n.Below, int(n.Stamp)})
	}
	return t
}
