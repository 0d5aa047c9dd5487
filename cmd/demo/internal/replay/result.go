package replay

import (
	"context"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
)

// Result is what a replay measured, as `demo replay --json` prints it.
type Result struct {
	Trace          string `json:"trace"`
	Mode           string `json:"mode"` // ModeAtomic or ModeTimed
	Policy         string `json:"policy"`
	TokensPerBlock int    `json:"tokens_per_block"`
	Pages          int    `json:"pages"` // of each pool
	HostPages      int    `json:"host_pages"`

	Requests int     `json:"requests"`
	Blocks   int64   `json:"blocks"` // of prompts, looked up
	Hits     int64   `json:"hit_blocks"`
	HitRate  float64 `json:"hit_rate"`

	PromptTokens int64 `json:"prompt_tokens"`
	ReusedTokens int64 `json:"reused_tokens"`
	AnswerTokens int64 `json:"answer_tokens"`

	EvictedPages   int64 `json:"evicted_pages"`
	OffloadedPages int64 `json:"offloaded_pages"`
	OnboardedPages int64 `json:"onboarded_pages"`
	DroppedPages   int64 `json:"dropped_pages"`
	BytesOffloaded int64 `json:"bytes_offloaded"`
	BytesOnboarded int64 `json:"bytes_onboarded"`

	Refused     int      `json:"refused_requests"` // never served: larger than the cache
	Retries     int      `json:"refusals"`         // waits for pages, once for each try
	Preemptions int      `json:"preemptions"`
	Lost        int      `json:"lost_sequences"` // went down with an actor, admitted again
	Verified    int64    `json:"verified_pages"`
	LeakedPages int      `json:"leaked_pages"`
	Problems    []string `json:"problems"`

	PrefillSeconds float64 `json:"prefill_seconds"` // of the modelled GPU, what was computed
	SavedSeconds   float64 `json:"saved_seconds"`   // what reuse spared it
	DeviceSeconds  float64 `json:"device_seconds"`  // simulated
	EngineSeconds  float64 `json:"engine_seconds"`  // wall time inside engine calls
	Seconds        float64 `json:"seconds"`         // wall time
}

// look counts the blocks of one prompt.
func (r *Result) look(blocks, hits int) {
	r.Requests++
	r.Blocks += int64(blocks)
	r.Hits += int64(hits)
}

// timed takes over what a server counted.
func (r *Result) timed(t serve.Totals) {
	r.PromptTokens, r.ReusedTokens, r.AnswerTokens = t.PromptTokens, t.ReusedTokens, t.AnswerTokens
	r.Refused, r.Retries, r.Preemptions = t.GivenUp, t.Refusals, t.Preemptions
	r.Lost = t.Lost
	r.PrefillSeconds, r.SavedSeconds = t.Prefill.Seconds(), t.Saved.Seconds()
}

// checked takes over what a compute stream checked.
func (r *Result) checked(c *serve.Compute) {
	r.Verified += c.Verified
	r.Problems = append(r.Problems, c.Problems...)
}

// close checks what is stored in the end and takes over the engine's counters.
func (r *Result) close(ctx context.Context, rig *engine.Rig, start time.Time) error {
	pages, problems, err := rig.Verify(ctx)
	if err != nil {
		return err
	}
	r.Verified += int64(pages)
	r.Problems = append(r.Problems, problems...)
	stats, err := rig.Stats(ctx)
	if err != nil {
		return err
	}
	for _, p := range stats.Pools {
		r.EvictedPages += p.Evicted
		r.OffloadedPages += p.Offloaded
		r.OnboardedPages += p.Onboarded
		r.DroppedPages += p.Dropped
		r.BytesOffloaded += p.BytesOffloaded
		r.BytesOnboarded += p.BytesOnboarded
	}
	if r.Blocks > 0 {
		r.HitRate = float64(r.Hits) / float64(r.Blocks)
	}
	if r.Problems == nil {
		r.Problems = []string{}
	}
	r.DeviceSeconds = rig.Now().Seconds()
	r.EngineSeconds = rig.Total().Seconds()
	r.Seconds = time.Since(start).Seconds()
	return nil
}
