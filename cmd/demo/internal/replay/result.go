package replay

import (
	"context"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
)

// Result is what a replay measured, as `demo replay --json` prints it.
type Result struct {
	Trace          string `json:"trace"`
	Mode           string `json:"mode"` // ModeAtomic or ModeTimed
	Policy         string `json:"policy"`
	TokensPerBlock int    `json:"tokens_per_block"`
	Pages          int    `json:"pages"` // of each pool
	HostPages      int    `json:"host_pages"`
	Pools          int    `json:"pools"`
	PageBytes      int64  `json:"page_bytes"` // of a page in each pool, added up

	Requests int     `json:"requests"`
	Blocks   int64   `json:"blocks"` // of prompts, looked up
	Hits     int64   `json:"hit_blocks"`
	HitRate  float64 `json:"hit_rate"`
	HostHits int64   `json:"host_hit_blocks"` // of the hits, those found in host memory

	PromptTokens int64 `json:"prompt_tokens"`
	ReusedTokens int64 `json:"reused_tokens"`
	AnswerTokens int64 `json:"answer_tokens"`
	// ThrashTokens are those of EnginePromptTokens that were evicted a short while before, as
	// inspect.Stats has them. Both count what the engine was asked for.
	ThrashTokens       int64 `json:"thrash_tokens"`
	EnginePromptTokens int64 `json:"engine_prompt_tokens"`

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
	ComputeSeconds float64 `json:"compute_seconds"` // of these, kernels of the host
	EngineSeconds  float64 `json:"engine_seconds"`  // wall time inside engine calls
	Seconds        float64 `json:"seconds"`         // wall time

	Copies   []Copies   `json:"copies,omitempty"`    // by direction
	Calls    []Calls    `json:"calls,omitempty"`     // of the engine, by kind
	OverTime []Interval `json:"over_time,omitempty"` // if Config.Intervals asks for it
}

// Copies are what the simulated device copied one way.
type Copies struct {
	Direction string  `json:"direction"` // "device to host", "host to device" or "on the device"
	Pages     int64   `json:"pages"`     // and parts of pages
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"` // simulated, in which the copy engine was busy
}

// Calls are the calls of one kind to the engine, in wall time.
type Calls struct {
	Call    string  `json:"call"`
	Calls   int64   `json:"calls"`
	Items   int64   `json:"items"` // requests or steps in them
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_seconds"`
	P99     float64 `json:"p99_seconds"`
	Max     float64 `json:"max_seconds"`
}

// directions names the directions of copies as Result and the demo's tables do.
var directions = [gpu.Directions]string{gpu.Offload: "device to host",
	gpu.Onboard: "host to device", gpu.Local: "on the device"}

// look counts the blocks of one prompt; of the hits some are on the host.
func (r *Result) look(blocks, hits, onHost int) {
	r.Requests++
	r.Blocks += int64(blocks)
	r.Hits += int64(hits)
	r.HostHits += int64(onHost)
}

// counted is where the counters stand that a timeline shows. The bytes are those of copies
// that have ended.
func (r *Result) counted(device simgroup.Simulated) Interval {
	v := Interval{Requests: int64(r.Requests), Blocks: r.Blocks, DeviceHits: r.Hits - r.HostHits,
		HostHits: r.HostHits}
	if device != nil {
		c := device.Counters()
		v.BytesOffloaded, v.BytesOnboarded = c.Directions[gpu.Offload].Bytes,
			c.Directions[gpu.Onboard].Bytes
	}
	return v
}

// measured takes over what the device and the meter counted.
func (r *Result) measured(rig *engine.Rig) {
	counters := rig.Sim.Counters()
	for d, name := range directions {
		t := counters.Directions[d]
		r.Copies = append(r.Copies, Copies{Direction: name, Pages: t.Copies, Bytes: t.Bytes,
			Seconds: t.Busy.Seconds()})
	}
	r.Calls = CallsOf(&rig.Meter)
}

// CallsOf are the calls that a meter has measured.
func CallsOf(m *engine.Meter) (list []Calls) {
	m.Timings(func(name string, t *engine.Timing) {
		times := t.Quantiles(0.5, 0.99, 1)
		list = append(list, Calls{
			Call: name, Calls: t.Calls, Items: t.Items, Seconds: t.Total.Seconds(),
			P50: times[0].Seconds(), P99: times[1].Seconds(), Max: times[2].Seconds(),
		})
	})
	return list
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
	r.Verified += c.Checked().Pages
	r.ComputeSeconds += c.Busy.Seconds()
	r.Problems = append(r.Problems, c.Problems()...)
}

// verify checks the bytes of all pages that the engine claims to hold, and its invariants.
func (r *Result) verify(ctx context.Context, rig *engine.Rig) error {
	pages, problems, err := rig.Verify(ctx)
	r.Verified += int64(pages)
	r.Problems = append(r.Problems, problems...)
	return err
}

// close checks what is stored in the end and takes over the engine's counters. Without
// kernels the pages have no bytes that could be checked; the engine's invariants are.
func (r *Result) close(ctx context.Context, rig *engine.Rig, start time.Time, kernels bool) error {
	if !kernels {
		if err := rig.Check(ctx); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
	} else if err := r.verify(ctx, rig); err != nil {
		return err
	}
	stats, err := rig.Stats(ctx)
	if err != nil {
		return err
	}
	r.ThrashTokens, r.EnginePromptTokens = stats.ThrashTokens, stats.PromptTokens
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
	r.measured(rig)
	r.DeviceSeconds = rig.Now().Seconds()
	r.EngineSeconds = rig.Meter.Total().Seconds()
	r.Seconds = time.Since(start).Seconds()
	return nil
}
