package paper

// Request is the prompt of a request as a list of blocks.
type Request []int32

// Trace is a list of requests in the order of their arrival.
type Trace struct {
	TokensPerBlock int
	Requests       []Request
}

// blocks is one more than the highest number of a block.
func (t *Trace) blocks() int {
	highest := int32(-1)
	for _, r := range t.Requests {
		for _, b := range r {
			highest = max(highest, b)
		}
	}
	return int(highest) + 1
}
