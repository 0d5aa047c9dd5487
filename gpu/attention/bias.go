package attention

import "math"

// Bias is what is added to the scores of one head: scores[i] is that of the
// query with the key at position from + i.
// Add runs on several workers at once and must not write to the bias.
type Bias interface {
	Add(scores []float32, head, query, from int)
}

// ALiBi adds slope[h] · (key − query).
// The source is Press et al., Train Short, Test Long (2022).
type ALiBi struct{ Slopes []float32 }

// Add adds the bias to scores of consecutive keys.
func (a ALiBi) Add(scores []float32, head, query, from int) {
	slope := a.Slopes[head]
	for i := range scores {
		scores[i] += float32(slope * float32(from+i-query))
	}
}

// ALiBiSlopes are the slopes of so many heads: 2^(−8(i+1)/p) for the power of
// two p below or at heads, then every other slope of twice as many.
func ALiBiSlopes(heads int) []float32 {
	// The formula of the paper's authors: for a number of heads that is no power of two, the
	// slopes of the next lower power, then every other slope of the next higher one.
	p := 1
	for 2*p <= heads {
		p *= 2
	}
	out := make([]float32, heads)
	for i := range out {
		exponent := -8 * float64(i+1) / float64(p)
		if i >= p {
			exponent = -4 * float64(2*(i-p)+1) / float64(p)
		}
		out[i] = float32(math.Pow(2, exponent))
	}
	return out
}

// RelativeBias adds a number for each head and bucket of distances (T5).
// One table serves all layers of a T5 stack.
type RelativeBias struct {
	// MaxDistance is the distance from which on all keys share the last bucket.
	Table         []float32 // [bucket][head]
	Heads         int
	Buckets       int
	MaxDistance   int
	Bidirectional bool
}

// Add adds the bias to scores of consecutive keys.
func (b *RelativeBias) Add(scores []float32, head, query, from int) {
	for i := range scores {
		scores[i] += b.Table[b.Bucket(from+i-query)*b.Heads+head]
	}
}

// Bucket is the bucket of a distance, key − query. Half of the buckets are for
// one distance each, the others widen up to MaxDistance. Both ways, keys behind
// the query use the upper half of all buckets.
func (b *RelativeBias) Bucket(distance int) int {
	// n is the distance back from the query. One way, keys behind the query are not seen.
	first, buckets, n := 0, b.Buckets, -distance
	if b.Bidirectional {
		buckets /= 2
		if n < 0 {
			first, n = buckets, -n
		}
	}
	n = max(n, 0)
	exact := buckets / 2
	if n < exact {
		return first + n
	}
	// Half of the buckets divide the distances from exact to MaxDistance evenly by logarithm,
	// as T5 has it: the farther a key, the less its exact distance matters.
	far := math.Log(float64(n)/float64(exact)) / math.Log(float64(b.MaxDistance)/float64(exact))
	return first + min(buckets-1, exact+int(far*float64(buckets-exact)))
}

// DenseBias is a number for each head, query and key, [head][Queries][Keys].
// Query and key are positions in the text: it needs as many of both as the longest text.
type DenseBias struct {
	Values        []float32
	Queries, Keys int
}

// Add adds the bias to scores of consecutive keys.
func (b *DenseBias) Add(scores []float32, head, query, from int) {
	row := b.Values[(head*b.Queries+query)*b.Keys:][:b.Keys]
	for i := range scores {
		scores[i] += row[from+i]
	}
}
