package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// poolPressure measures which pool's memory is worth most, so that a rebalance by
// demand knows where to move it.
//
// Evictions alone say little: most evicted blocks are never asked for again. What
// counts is work that one pool's shortage has caused. A prompt that could have
// been reused further, had some pools not lacked blocks that others still know,
// costs these pools the tokens that are computed again; a request or a step that
// was refused for lack of pages costs the pool the tokens of the pages it lacked.
// What every pool has evicted is charged to the pools that evicted blocks which a prompt could
// still use: the others then evicted what had become useless. It counts only if a prompt wants
// it within the horizon of thrash.
//
// So a pool that keeps blocks longer than the others do has no cost, and the one
// that keeps them the shortest has all of it: memory moves until all pools forget
// at about the same age, and none keeps what no prompt can use without another.
type poolPressure struct {
	config *Config
	pools  int // self pools: no memory moves from or to the others
	held   *pageCounts
	stats  *statistics

	budget  int64     // bytes of device memory that the self pools may have together
	cost    []float64 // by pool, tokens; halved when it was looked at in vain
	lacked  []int     // by pool, the most pages that a refused request lacked since the last move
	prompt  float64   // tokens of all prompts in the same time
	evicted []int64   // by pool, at the last look
	useful  []float64 // by pool, evicted pages that a match could have used; halved as cost is
	moved   bool      // memory has moved before
	spacing spacing
}

// The demand rule. Memory moves from the pool with the least cost to the one with
// the most if that is hysteresis times as much, so that a workload that changes back
// and forth does not move memory back and forth. A move is a part of the memory of the smaller
// of the two pools: half of what the difference of their costs is of all prompt tokens, and
// mostStep without any cost. It is at least what a refused request lacked.
const (
	hysteresis = 1.5
	mostStep   = 1.0 / 4
	// worthMoving is the least cost, as a part of all prompt tokens.
	worthMoving = 0.05
	// evidence is the prompt tokens that a look needs, as a part of what the
	// largest pool holds: what a move has done shows when pages have turned over.
	evidence = 1.0 / 4
)

func newPoolPressure(config *Config, counts *pageCounts, stats *statistics) *poolPressure {
	n := config.selfPools()
	d := &poolPressure{
		config: config, pools: n, held: counts, stats: stats,
		cost: make([]float64, n), lacked: make([]int, n), evicted: make([]int64, n),
		useful: make([]float64, n),
	}
	d.budget = d.total()
	if config.RebalanceEvery > 0 {
		d.spacing = spacingOf(config)
	}
	return d
}

// noteMatch counts what an admitted prompt had to compute again. Pools that lacked blocks which
// others still know share these tokens. Those that were evicted from all pools a short while ago
// are shared by how many useful pages each has evicted.
//
// In models with states, tokens that only an evicted checkpoint was missing for cost the state
// pools alone.
func (d *poolPressure) noteMatch(m *protocol.MatchItem, prompt int, l loss) {
	d.prompt += float64(prompt)
	d.spacing.note(l)
	byUseful := func(p int) float64 { return d.useful[p] }
	if d.pools > d.config.tokenPools() {
		d.charge(l.states, func(p int) float64 {
			if p < d.config.tokenPools() {
				return 0
			}
			return 1
		})
		d.charge(l.evicted, byUseful)
		return
	}
	lacking := max(0, m.Reach-m.Matched)
	d.charge(max(0, l.evicted-lacking), byUseful)
	// Each pool that lacked blocks has an equal part: the prompt could not go on without any of
	// them, so none of them cost more than another.
	d.charge(lacking, func(p int) float64 { return float64(min(m.Lacks[p], 1)) })
}

// charge shares tokens between pools by their weights.
func (d *poolPressure) charge(tokens int, weight func(p int) float64) {
	if tokens <= 0 {
		return
	}
	sum := 0.0
	for p := range d.cost {
		sum += weight(p)
	}
	for p := range d.cost {
		if w := weight(p); w > 0 {
			d.cost[p] += float64(tokens) * w / sum
		}
	}
}

// noteVictims counts the useful pages that a pool has evicted. Useless ones went because other
// pools are short.
func (d *poolPressure) noteVictims(p int, victims []protocol.Victim) {
	if p >= d.pools {
		return
	}
	for i := range victims {
		if !victims[i].Useless {
			d.useful[p]++
		}
	}
}

// noteRefusal counts a request that found too few pages: the tokens that those
// it lacked would have held. A host tries again, and each time counts.
func (d *poolPressure) noteRefusal(err error) {
	var r *messages.Refusal
	if !errors.As(err, &r) || r.Code != messages.ErrOutOfPages {
		return
	}
	// The pages that were missing, not all that the request asked for: the others were there.
	tokens := float64((r.Need - r.Available) * d.config.TokensPerBlock)
	d.prompt += tokens
	p := slices.IndexFunc(d.config.Pools, func(p windows.Pool) bool { return p.Name == r.Pool })
	if p >= 0 && p < d.pools {
		d.cost[p] += tokens
		d.lacked[p] = max(d.lacked[p], r.Need-r.Available)
	}
}

// poolMove is memory that goes from one pool to another: pages of the first become gained pages
// of the second.
type poolMove struct{ from, to, pages, gained int }

// demand gives the move that measured demand asks for; nil if the split is right as it
// is. fixed, if it is not nil, is the least count that a pool may get.
func (d *poolPressure) demand(fixed func(pool int) int) *poolMove {
	// The first look of all needs no evidence: a split that is plainly wrong is corrected at
	// once.
	if d.prompt < evidence*float64(d.capacity()) && d.moved {
		return nil
	}
	d.spacing.adjust(d.prompt)
	low, high := d.extremes()
	// Nothing speaks for a move. What was measured counts half from now on, or an old burst
	// would decide long after it.
	if low == high {
		d.fade()
		return nil
	}
	// What is held cannot be taken away, and no pool is left without a page.
	held := max(d.held.needed(low), 1)
	if fixed != nil {
		held = max(held, fixed(low))
	}
	move := d.move(low, high, d.held.device[low].Total-held)
	if move.gained <= 0 {
		d.fade()
		return nil
	}
	// The costs were those of the old split: they say nothing about the new one.
	d.moved = true
	clear(d.cost)
	clear(d.useful)
	clear(d.lacked)
	d.spacing.clear()
	d.prompt = 0
	return &move
}

// step is the part of the smaller pool's memory that moves.
func (d *poolPressure) step(low, high int) float64 {
	if d.cost[high] == 0 {
		return mostStep
	}
	return min((d.cost[high]-d.cost[low])/d.prompt/2, mostStep)
}

// move is what one pool may give another of so many pages: a step of the smaller one's memory,
// or what a refused request lacked, and nothing that becomes no page. What is less than a page of
// the pool that grows stays in the budget, for the next move.
func (d *poolPressure) move(low, high, pages int) poolMove {
	from, to := d.config.Pools[low].PageBytes(), d.config.Pools[high].PageBytes()
	spare := d.budget - d.total()
	step := int64(d.step(low, high) * float64(min(d.bytes(low), d.bytes(high))))
	gained := max(step/to, int64(d.lacked[high]), 1)
	gained = min(gained, int64(d.room(high)), (int64(max(pages, 0))*from+spare)/to)
	paid := (max(gained*to-spare, 0) + from - 1) / from
	return poolMove{from: low, to: high, pages: int(paid), gained: int(gained)}
}

// counts are the pages of all pools after a move.
func (d *poolPressure) counts(m *poolMove) []int {
	pages := d.totals()
	pages[m.from] -= m.pages
	pages[m.to] += m.gained
	return pages
}

// room is how many pages a pool may grow by: max_tokens limits attention pools.
func (d *poolPressure) room(p int) int {
	if d.config.MaxPages == 0 || p >= d.config.tokenPools() {
		return math.MaxInt32
	}
	return d.config.MaxPages - d.held.device[p].Total
}

// most is how many pages a pool can have at most: those that it has, and where memory moves by
// demand all of the budget but a page of each other pool.
func (d *poolPressure) most(p int) int {
	total := d.held.device[p].Total
	if d.config.RebalanceEvery == 0 || p >= d.pools {
		return total
	}
	bytes := d.budget
	for other := range d.pools {
		if other != p {
			bytes -= d.config.Pools[other].PageBytes()
		}
	}
	pages := int(min(bytes/d.config.Pools[p].PageBytes(), windows.MaxPages))
	return max(total, min(pages, total+d.room(p)))
}

// lack is the refusal of a request for pages, of which the pool has fewer available; nil if it has
// enough. In all the request would hold so many pages.
func (d *poolPressure) lack(p, need, available, all int) *messages.Refusal {
	if available = max(0, available); need <= available {
		return nil
	}
	return d.outOfPages(p, need, available, max(all, need))
}

// outOfPages refuses a request that lacks pages: for ever if the pool cannot have as many as the
// request would hold in all.
func (d *poolPressure) outOfPages(p, need, available, all int) *messages.Refusal {
	name, total, most := d.config.Pools[p].Name, d.held.device[p].Total, d.most(p)
	r := refusals.OutOfPages(name, need, available)
	r.Total, r.Never = total, all > most
	if !r.Never {
		return r
	}
	beside, limit := "", fmt.Sprintf("has %d", total)
	if all > need {
		beside = fmt.Sprintf(" beside the %d held,", all-need)
	}
	if most > total {
		limit = fmt.Sprintf("can have %d", most)
	}
	r.Message = fmt.Sprintf("pool %s needs %d pages%s and %s", name, need, beside, limit)
	return r
}

// total is the bytes of device memory that the self pools have now.
func (d *poolPressure) total() (bytes int64) {
	for p := range d.pools {
		bytes += d.bytes(p)
	}
	return bytes
}

// capacity is the tokens that the largest pool of blocks holds; without such pools, those of as
// many blocks as there are states.
func (d *poolPressure) capacity() (tokens int) {
	for p := range cmp.Or(d.config.tokenPools(), d.pools) {
		tokens = max(tokens, d.held.device[p].Total*d.config.TokensPerBlock)
	}
	return tokens
}

// totals are the pages of all pools as they are.
func (d *poolPressure) totals() []int {
	pages := make([]int, len(d.config.Pools))
	for p := range pages {
		pages[p] = d.held.device[p].Total
	}
	return pages
}

// bytes is the device memory of a pool.
func (d *poolPressure) bytes(p int) int64 {
	return int64(d.held.device[p].Total) * d.config.Pools[p].PageBytes()
}

// extremes gives the pools that have cost least and most; the same one twice if
// nothing speaks for a move. Cost for each byte of a pool was tried: it favours
// small pools, and did worse on every workload of the benchmark.
func (d *poolPressure) extremes() (low, high int) {
	high = d.growing(d.cost)
	for p := range d.cost {
		if d.cost[p] < d.cost[low] {
			low = p
		}
	}
	if d.cost[high] == 0 {
		return d.evicting()
	}
	if d.cost[high] < worthMoving*d.prompt || d.cost[high] < hysteresis*d.cost[low] {
		return 0, 0
	}
	// One state page less can lose whole prompts at once, and cost shows that only afterwards. So
	// no memory leaves a pool that evicts a larger part of its useful pages than the other.
	turnover := func(p int) float64 { return d.useful[p] / float64(d.held.device[p].Total) }
	if d.pools > d.config.tokenPools() && turnover(low) > turnover(high) {
		return 0, 0
	}
	return low, high
}

// growing is the pool with the highest number of those that may grow; 0 if none may.
func (d *poolPressure) growing(numbers []float64) (high int) {
	for p, n := range numbers {
		if d.room(p) > 0 && (n > numbers[high] || d.room(high) <= 0) {
			high = p
		}
	}
	return high
}

// evicting is the choice while no pool has cost anything: from one that has
// evicted nothing to the one that evicts most of its memory. Without any cost nothing that was
// evicted has been asked for again, and evictions are all that tells the pools apart.
func (d *poolPressure) evicting() (low, high int) {
	pressure := make([]float64, d.pools)
	for p := range pressure {
		now := d.stats.pool(p).Evicted
		pressure[p] = float64(now-d.evicted[p]) / float64(d.held.device[p].Total)
		d.evicted[p] = now
		if pressure[p] < pressure[low] || pressure[p] == pressure[low] &&
			d.held.device[p].Free > d.held.device[low].Free {
			low = p
		}
	}
	high = d.growing(pressure)
	// State pools evict all the time, mostly checkpoints that longer ones have replaced. That
	// is no demand.
	if pressure[low] > 0 || pressure[high] == 0 || high >= d.config.tokenPools() &&
		d.config.tokenPools() > 0 {
		return 0, 0
	}
	return low, high
}

// fade halves what was measured: old demand counts less than what follows. Cost and prompt fade
// alike, so what one is of the other stays the same.
func (d *poolPressure) fade() {
	for p := range d.cost {
		d.cost[p] /= 2
		d.useful[p] /= 2
	}
	clear(d.lacked)
	d.prompt /= 2
	d.spacing.fade()
}
