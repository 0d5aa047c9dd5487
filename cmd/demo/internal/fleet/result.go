package fleet

import (
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
)

// Result is what a run of a fleet has measured, as `demo fleet --json` prints it. Bytes
// are those of the modelled model's keys and values.
type Result struct {
	Name     string `json:"name"`
	Model    string `json:"model"` // that is modelled
	Trace    string `json:"trace"`
	Engines  int    `json:"engines"`
	Seed     uint64 `json:"seed"`
	Requests int    `json:"requests"`
	GivenUp  int    `json:"given_up"`
	Part
	// Before are the requests of the first half, After those behind, whether an engine is
	// killed there or not.
	Before Part `json:"before"`
	After  Part `json:"after"`

	// Again are the requests that the killed engine was serving; they are in neither half.
	Again      Part `json:"retried"`
	Killed     int  `json:"killed_engine"` // −1: none
	Retried    int  `json:"retried_requests"`
	LostBlocks int  `json:"lost_blocks"` // that the killed engine had

	// of prompts, those of retried and preempted requests again
	ComputedTokens int64   `json:"computed_tokens"`
	PrefillSeconds float64 `json:"prefill_seconds"` // of the modelled GPUs, what was computed
	SavedSeconds   float64 `json:"saved_seconds"`   // what reuse has saved them
	FetchSeconds   float64 `json:"fetch_seconds"`   // that admissions waited for the store
	FirstSeconds   float64 `json:"first_token_seconds"`

	StoreReadBytes    int64 `json:"store_read_bytes"`
	StoreWrittenBytes int64 `json:"store_written_bytes"`
	StoreReads        int64 `json:"store_reads"` // pages
	StoreWrites       int64 `json:"store_writes"`
	StoreDropped      int64 `json:"store_dropped"`
	StoreErrors       int64 `json:"store_errors"`
	RejectedObjects   int64 `json:"rejected_objects"`

	Events      int `json:"events"`       // that the router has followed
	IndexBlocks int `json:"index_blocks"` // that it knows in the end

	VerifiedPages int64    `json:"verified_pages"` // that were reused
	CheckedPages  int64    `json:"checked_pages"`  // that were there in the end
	WrongPages    int64    `json:"wrong_pages"`
	Problems      []string `json:"problems"`
	FleetSeconds  float64  `json:"fleet_seconds"` // from the first request to the last answer
	Seconds       float64  `json:"seconds"`       // wall time
}

// Status is how far a run is.
type Status struct {
	Answered int
	HitRate  float64
	Flights  []int // by engine: requests that it serves; −1: it was killed
}

// Part counts the answers to some of the requests.
type Part struct {
	Answered     int     `json:"answered"`
	PromptTokens int64   `json:"prompt_tokens"`
	ReusedTokens int64   `json:"reused_tokens"`
	HitRate      float64 `json:"hit_rate"` // of prompt tokens
}

// add counts an answer.
func (p *Part) add(q *serve.Request) {
	p.Answered++
	p.PromptTokens += int64(q.Prompt)
	p.ReusedTokens += int64(q.Outcome.Reused)
	p.HitRate = float64(p.ReusedTokens) / float64(max(1, p.PromptTokens))
}

// add takes over the counters of one engine, before it is killed or after it is closed.
func (r *Result) add(h *host) {
	t := h.server.Totals()
	r.ComputedTokens += t.ComputedTokens
	r.PrefillSeconds += t.Prefill.Seconds()
	r.SavedSeconds += t.Saved.Seconds()
	r.VerifiedPages += t.VerifiedPages
	r.WrongPages += t.WrongPages
	if h.stored == nil {
		return
	}
	s := h.stored.store.Stats()
	r.FetchSeconds += h.stored.fetching.Seconds()
	r.StoreReads += s.FetchedObjects
	r.StoreWrites += s.SavedObjects
	r.StoreReadBytes += h.modelled(s.FetchedObjects, s.FetchedBytes)
	r.StoreWrittenBytes += h.modelled(s.SavedObjects, s.SavedBytes)
	r.StoreDropped += s.Dropped
	r.StoreErrors += s.Errors
	r.RejectedObjects += s.Rejected
}

// all are the answers of all parts.
func (r *Result) all() (all Part) {
	for _, p := range []Part{r.Before, r.After, r.Again} {
		all.Answered += p.Answered
		all.PromptTokens += p.PromptTokens
		all.ReusedTokens += p.ReusedTokens
	}
	all.HitRate = float64(all.ReusedTokens) / float64(max(1, all.PromptTokens))
	return all
}

// close computes what follows from the counters.
func (r *Result) close(wall, wait time.Duration) {
	r.Part = r.all()
	r.FirstSeconds = wait.Seconds() / float64(max(1, r.Answered))
	r.Seconds = wall.Seconds()
	if r.Problems == nil {
		r.Problems = []string{}
	}
}
