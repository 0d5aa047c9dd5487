package page

import (
	"context"
	"math"
	"slices"

	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
)

// Data is what a report shows, and the JSON inside its page.
type Data struct {
	Origin  Origin           `json:"origin"`
	Trace   Trace            `json:"trace"`
	Replays []*replay.Result `json:"replays"` // each as `demo replay --json` prints it

	// LRU and Distances are computed from the trace without an engine: exact for LRU with one
	// pool, one tier, blocks of the trace, and one request at a time.
	LRU       []Capacity `json:"lru"`
	Distances []Bucket   `json:"reuse_distances"`
	NewBlocks int64      `json:"new_blocks"` // lookups of blocks that no request had used before
	// Optimal is the most that any policy can hit with as many blocks as the replays have,
	// device and host together, one request at a time. It is empty where replays count other
	// blocks than the trace's.
	Optimal []Capacity `json:"optimal"`
}

// Origin says where a report comes from.
type Origin struct {
	Command string `json:"command"`
	Version string `json:"version"`
	Date    string `json:"date"` // RFC 3339, UTC
	Machine string `json:"machine"`
}

// Trace is what was replayed.
type Trace struct {
	Name           string  `json:"name"`
	Requests       int     `json:"requests"`
	Blocks         int64   `json:"blocks"` // looked up
	Distinct       int     `json:"distinct_blocks"`
	TokensPerBlock int     `json:"tokens_per_block"`
	Seconds        float64 `json:"seconds"` // from the first arrival to the last
}

// Capacity is what a cache of a number of blocks hits.
type Capacity struct {
	Blocks  int     `json:"blocks"`
	Hits    int64   `json:"hit_blocks"`
	HitRate float64 `json:"hit_rate"`
}

// Bucket counts the lookups whose distance is within [From, To).
type Bucket struct {
	From    int   `json:"from"`
	To      int   `json:"to"`
	Lookups int64 `json:"lookups"`
}

// curvePoints is about how many capacities the curve of LRU has.
const curvePoints = 80

// Gather makes the data of a report of replays of a trace. It computes the references.
func Gather(
	ctx context.Context, o Origin, name string, t *replay.Trace, replays []*replay.Result,
) (*Data, error) {
	d := &Data{Origin: o, Replays: replays, Optimal: []Capacity{}}
	d.Trace = Trace{
		Name: name, Requests: len(t.Requests), Blocks: t.Blocks, Distinct: t.Distinct,
		TokensPerBlock: t.TokensPerBlock,
	}
	if n := len(t.Arrivals); n > 0 {
		d.Trace.Seconds = (t.Arrivals[n-1] - t.Arrivals[0]).Seconds()
	}
	distances := paper.Measure(t.Trace)
	d.NewBlocks = distances.New
	for _, c := range d.capacities(distances.Distinct) {
		d.LRU = append(d.LRU, d.capacity(c, distances.Hits(c)))
	}
	for from := 1; from <= distances.Distinct; from *= 2 {
		d.Distances = append(d.Distances, Bucket{From: from, To: 2 * from,
			Lookups: distances.Between(from, 2*from)})
	}
	return d, d.reference(ctx, t)
}

func (d *Data) capacity(blocks int, hits int64) Capacity {
	c := Capacity{Blocks: blocks, Hits: hits}
	if d.Trace.Blocks > 0 {
		c.HitRate = float64(hits) / float64(d.Trace.Blocks)
	}
	return c
}

// capacities are even steps of the logarithm up to the number of distinct blocks, and the
// capacities of the replays.
func (d *Data) capacities(distinct int) []int {
	var list []int
	for i := range curvePoints + 1 {
		list = append(list, int(math.Round(math.Pow(float64(max(1, distinct)), float64(i)/curvePoints))))
	}
	for _, r := range d.Replays {
		list = append(list, r.Pages+r.HostPages)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// reference computes the optimum for each capacity of the replays.
func (d *Data) reference(ctx context.Context, t *replay.Trace) error {
	known := map[int]bool{}
	for _, r := range d.Replays {
		c := r.Pages + r.HostPages
		if known[c] || r.TokensPerBlock != t.TokensPerBlock || r.Pools > 1 {
			continue
		}
		known[c] = true
		best, err := replay.Optimal(ctx, replay.Config{Pages: c}, t)
		if err != nil {
			return err
		}
		d.Optimal = append(d.Optimal, d.capacity(c, best.Hits))
	}
	return nil
}

// atPages finds a reference by the capacity of a replay.
func atPages(list []Capacity, r *replay.Result) (Capacity, bool) {
	for _, c := range list {
		if c.Blocks == r.Pages+r.HostPages {
			return c, true
		}
	}
	return Capacity{}, false
}

// main is the replay that the plots of one replay show: the first that an engine ran.
func (d *Data) main() *replay.Result {
	for _, r := range d.Replays {
		if len(r.Calls) > 0 {
			return r
		}
	}
	return d.Replays[0]
}
