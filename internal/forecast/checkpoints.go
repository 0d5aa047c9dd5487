package forecast

import (
	"errors"
	"fmt"
	"math"
)

// checkpoints predicts when a checkpoint of recurrent states is used again.
//
// A checkpoint serves requests that agree with its prefix and with no longer one that is
// cached, so it is used alone, not with all those in front of it as a block of keys and values
// is. It is a page by itself. What is known of it are its uses and whether a longer one was
// made behind it. Each such class has its own hazard by age, counted from the checkpoints in
// the pool: one that is evicted counts for as long as it was there. Of checkpoints that are
// evicted early little is seen at later ages, so there the hazard is that of all classes, which
// is a reason to keep one of them now and then.
//
// The value is the one of pieces, the hits to be expected for the time that the page is
// occupied, times the blocks that a hit saves: those from the next shorter checkpoint to this
// one, which would be computed again without it.
type checkpoints struct {
	// observations by age: uses, and checkpoints that got so old
	used, reached [checkpointClasses][ageBins]float64
	// ln of the value of one block at the start of each bin
	table    [checkpointClasses][ageBins]float64
	observed int
}

const (
	checkpointUses    = 3                        // and more are one
	checkpointClasses = 2 * (checkpointUses + 1) // see classOf
)

const (
	ageBins  = 40
	ageWidth = 0.35 // of ln(age + 1 s): the last bin begins after 10 days

	// What is believed before anything was observed, by class and for all of them: as many
	// observations of such a hazard.
	hazardPrior = 4.0
	hazardStart = 0.05

	refreshEvery = 64 // observations
	// of what was observed, at each refresh: some 65,000 observations count
	checkpointDecay = 1 - 1.0/1024
)

// NewCheckpoints makes a policy for pages that are checkpoints of recurrent states each. It is
// told of their uses by Used and Gone instead of Begin and End.
func NewCheckpoints() *Policy {
	c := &checkpoints{}
	c.refresh()
	return &Policy{checkpoints: c}
}

// EndRequest takes in that a request has ended.
func (p *Policy) EndRequest(r *Request) {
	p.requests++
	p.waits.end(p.requests, r.Arrived, r.Released)
	p.clock.request(r.Released)
}

// Used teaches that a checkpoint is used now, whose last use was at the given time of Now, and
// returns its features from then on. It is not awaited any more: those that still wait for it
// say so when they are tried again.
func (p *Policy) Used(f Features, last int64) Features {
	p.checkpoints.observe(classOf(&f), p.clock.now-last, true)
	f.Uses, f.Wait = min(f.Uses+1, checkpointUses), 0
	return f
}

// Gone teaches that a checkpoint was not used until now, when it leaves the pool.
func (p *Policy) Gone(f Features, last int64) {
	p.checkpoints.observe(classOf(&f), p.clock.now-last, false)
}

// classOf is the class of a checkpoint.
func classOf(f *Features) int {
	if f.GoesOn {
		return int(f.Uses) + checkpointUses + 1
	}
	return int(f.Uses)
}

// ageBin is the bin of an age in milliseconds, and how far in it the age is.
func ageBin(ageMillis int64) (k int, part float64) {
	return whole(logAge(float64(max(0, ageMillis))/1000)/ageWidth, ageBins)
}

// observe counts a checkpoint of a class: the bins that it has outlived, and the one in which
// it was used.
//
// A checkpoint that is evicted in a bin has been seen in half of it.
func (c *checkpoints) observe(class int, ageMillis int64, used bool) {
	end, _ := ageBin(ageMillis)
	for k := range end {
		c.reached[class][k]++
	}
	if used {
		c.used[class][end]++
		c.reached[class][end]++
	} else {
		c.reached[class][end] += 0.5
	}
	if c.observed++; c.observed%refreshEvery == 0 {
		c.refresh()
	}
}

// refresh computes the table from what was observed, and makes that count a little less.
func (c *checkpoints) refresh() {
	var used, reached [ageBins]float64
	for class := range c.used {
		for k := range ageBins {
			c.used[class][k] *= checkpointDecay
			c.reached[class][k] *= checkpointDecay
			used[k] += c.used[class][k]
			reached[k] += c.reached[class][k]
		}
	}
	for class := range c.used {
		var hazard [ageBins]float64
		for k := range hazard {
			all := (used[k] + hazardPrior*hazardStart) / (reached[k] + hazardPrior)
			hazard[k] = (c.used[class][k] + hazardPrior*all) / (c.reached[class][k] + hazardPrior)
		}
		for k := range hazard {
			c.table[class][k] = math.Log(bestRate(hazard[:], ageTime, k))
		}
	}
}

// ageTime is the length of each bin of age in seconds.
var ageTime = widths(ageBins, func(k int) float64 { return ageWidth * float64(k) })

// bestRate is the value of holding something from the start of a bin on, see the comment of the
// package, by the hazards and lengths of all bins.
func bestRate(hazard, length []float64, from int) float64 {
	used, held, alive, best := 0.0, 0.0, 1.0, 0.0
	for k := from; k < len(hazard); k++ {
		used += alive * hazard[k]
		held += alive * (1 - hazard[k]/2) * length[k] // a use comes in the middle of its bin
		alive *= 1 - hazard[k]
		best = max(best, used/held)
	}
	return best
}

// logValue is ln of the value of a checkpoint.
func (c *checkpoints) logValue(f *Features, ageMillis int64) float64 {
	k, part := ageBin(ageMillis)
	row := &c.table[classOf(f)]
	return between(row[k], row[min(k+1, ageBins-1)], part) + math.Log(float64(max(1, f.Saved)))
}

// check verifies that no more checkpoints were used than have reached an age.
func (c *checkpoints) check() error {
	var errs []error
	for class := range c.used {
		for k := range ageBins {
			if used, reached := c.used[class][k], c.reached[class][k]; !(used >= 0 && used <= reached) {
				errs = append(errs, fmt.Errorf("checkpoints of class %d: %v of %v were used in bin %d",
					class, used, reached, k))
			}
		}
	}
	return errors.Join(errs...)
}
