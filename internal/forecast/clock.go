package forecast

import "time"

// clock is the policy's time in milliseconds. It follows the engine's time and advances by
// at least 1 with each request, so that no two requests have the same time.
//
// An engine's clock may stand still, as in a script or under a host that has none. After
// standingRequests requests at one time the clock counts requests instead, standingStep
// for each, until the engine's time moves again. Ages are then numbers of requests, of
// which recurrence is as good a function.
type clock struct {
	now    int64
	engine int64 // the engine's time, milliseconds
	ahead  int64 // now − engine: what was counted while the engine's clock stood still
	still  int   // requests since the engine's clock has moved
}

const (
	standingRequests = 64
	standingStep     = 1000
)

// advance follows the engine's time.
func (c *clock) advance(engine time.Duration) {
	if t := millis(engine); t > c.engine {
		c.engine, c.still = t, 0
		c.now = max(c.now, t+c.ahead)
	}
}

// request advances the clock for a request that ends at the engine's time.
func (c *clock) request(engine time.Duration) {
	c.advance(engine)
	if c.still++; c.still > standingRequests {
		c.ahead += standingStep
	}
	c.now = max(c.now+1, c.engine+c.ahead)
}

// at is the clock's time of a recent moment of the engine's time.
func (c *clock) at(engine time.Duration) int64 {
	if c.still > standingRequests {
		return c.now
	}
	return min(c.now, millis(engine)+c.ahead)
}

// secondsBetween is the time from one moment in milliseconds to another, 0 if the first one is
// later.
func secondsBetween(from, to int64) float64 { return float64(max(0, to-from)) / 1000 }
