package forecast

import (
	"math"
)

// prediction is what the model says of the next use of a piece. The scale is ln of the expected
// gap in seconds, the score the log odds that are added to every hazard.
type prediction struct{ scale, score float64 }

// The hazard is a function of z = ln(age + 1 s) − scale in bins of equal width. The value has a
// table over score and z; ranges beyond it are clamped.
const (
	bins     = 32
	binStart = -7.0
	binWidth = 0.4

	scores    = 40 // rows of the value table
	scoreStep = 0.25
	scoreLow  = -6.5
)

// What is believed of the weights before anything was observed: variances of normal
// distributions around the values of newModel. They are in units of log odds, so they need not
// be fitted to a trace: a feature changes the odds of a use by a factor of e^√0.06 = 1.3, nine
// features together by about two; the shape of the hazard is known within a factor of two; and
// that a last or a superseded block is used at all is hardly known.
const (
	weightVariance = 0.06
	biasVariance   = 0.5
	markVariance   = 0.5
	// Traffic changes, so that each observation also makes weights a little less certain. They
	// settle where ten thousands of observations count, instead of all.
	drift = 1e-8
)

// Rates of learning of the expected gap, as measured on the traces of docs/policies.md.
const (
	// All features of one gap are corrected by its whole error, and a scale that moves also
	// shifts the bins that have been learned: with 0.1 for all the mean share of
	// docs/policies.md is one point lower.
	scaleRate     = 0.025
	paceScaleRate = 0.05 // of the pace, which is measured in the same unit
	clipError     = 2.0
	baseWindow    = 200
)

// model predicts the time until a block is used again, and learns from blocks whose next use
// was seen.
//
// The expected gap is exp(base + Σ scales[i][f_i]). The hazard in bin k, the chance of a use in
// this bin if there was none before, is logistic(bias[k] + Σ weights[i][f_i]).
type model struct {
	base     float64
	baseSeen int
	scale    [featureCount][mostValues]scaleWeight // by feature and its value
	weight   [featureCount][mostValues]weight
	bias     [bins]weight

	table [scores][bins + 1]float64 // ln of the value at the start of each bin, times e^scale
	row   int                       // the next row to be computed again
}

// scaleWeight is a term of the expected gap and the number of gaps that taught it.
type scaleWeight struct {
	value float64
	seen  int
}

// weight is a term of the score that is known as a normal distribution: what it probably is,
// and how uncertain that is.
type weight struct{ value, variance float64 }

// learn corrects the weight by its part of a gradient, and makes it more certain by its part of
// what was observed.
func (w *weight) learn(gradient, information float64) {
	w.value -= w.variance * gradient
	w.variance = w.variance*(1-w.variance*information) + drift
}

// newModel starts from a gap of 30 s, log-normal with σ = 1, and half of all blocks used again.
// That is between what people and agents do, and soon corrected. Superseded pieces and last
// blocks start with a low score, since both are consequences of how prompts grow and were found
// on every trace; otherwise the first minutes of a cache would be spent on learning them.
func newModel() *model {
	m := &model{base: math.Log(30)}
	for i := range m.weight {
		for v := range m.weight[i] {
			m.weight[i][v].variance = weightVariance
		}
	}
	normal := func(z float64) float64 { return 0.5 * (1 + math.Erf(z/math.Sqrt2)) }
	for k := range m.bias {
		from, to := normal(edge(k)), normal(edge(k+1))
		h := 0.5 * (to - from) / (1 - 0.5*from)
		m.bias[k] = weight{max(-9, math.Log(h/(1-h))), biasVariance}
	}
	m.weight[featureSuperseded][1] = weight{-3, markVariance}
	m.weight[featureLast][1] = weight{-1.2, markVariance}
	for range scores {
		m.refresh()
	}
	return m
}

// edge is the lower end of a bin.
func edge(k int) float64 { return binStart + binWidth*float64(k) }

// binTime is the length of each bin in units of e^scale seconds.
var binTime = widths(bins, edge)

// widths is the length of each bin, of which an edge is the logarithm of the lower end.
func widths(n int, edge func(k int) float64) []float64 {
	list := make([]float64, n)
	for k := range list {
		list[k] = math.Exp(edge(k+1)) - math.Exp(edge(k))
	}
	return list
}

// predict gives the prediction for a piece by what is known now. A value of a feature that was
// never seen has terms of 0 and changes nothing.
func (m *model) predict(f *Features) prediction {
	p := prediction{scale: m.base}
	for i, v := range f.Values {
		p.scale += m.scale[i][v].value
		p.score += m.weight[i][v].value
	}
	return p
}

// learnGap corrects the expected gap after one was seen, with ln of its length in seconds.
// Last blocks teach nothing about gaps: most are never used again, and the others with the
// block in front.
func (m *model) learnGap(f *Features, logGap float64) {
	if f.Values[featureLast] == 1 {
		return
	}
	e := clip(logGap - m.predict(f).scale)
	for i, v := range f.Values {
		w := &m.scale[i][v]
		w.seen++
		rate := scaleRate
		if i == featurePace {
			rate = paceScaleRate
		}
		w.value += rate * e / math.Sqrt(float64(w.seen))
	}
	m.baseSeen = min(m.baseSeen+1, baseWindow)
	m.base += e / float64(m.baseSeen+10)
}

// clip bounds the error of one gap. A session that returns after a night is a factor of
// thousands away from its expected gap, and would move the scale of all pieces by more than
// everything before.
func clip(e float64) float64 { return max(-clipError, min(clipError, e)) }

// learnBin corrects the hazard of one bin: the block was used within it, or outlived it.
//
// All terms of the score are corrected together, each by its share in what is uncertain of
// their sum: a step of the extended Kalman filter for a logistic observation, with the
// covariances left out. A term that has been observed often barely moves, a rare value of a
// feature moves as far as its first observations say. Steps by gradients alone (AdaGrad) were
// rejected: the mean share of docs/policies.md is two points lower, because weights that were
// seen a few dozen times are still far from what the observations say.
func (m *model) learnBin(f *Features, bin int, used bool) {
	chance := logistic(m.bias[bin].value + m.predict(f).score)
	gradient, information := chance, chance*(1-chance)
	if used {
		gradient--
	}
	// Last blocks are sampled by themselves, so they correct their own weight only.
	if f.Values[featureLast] == 1 {
		w := &m.weight[featureLast][1]
		share := 1 / (1 + information*w.variance)
		w.learn(gradient*share, information*share)
		return
	}
	share := 1 / (1 + information*(m.bias[bin].variance+m.uncertain(f)))
	m.bias[bin].learn(gradient*share, information*share)
	for i, v := range f.Values {
		m.weight[i][v].learn(gradient*share, information*share)
	}
}

// uncertain is the variance of the score of a piece.
func (m *model) uncertain(f *Features) (variance float64) {
	for i, v := range f.Values {
		variance += m.weight[i][v].variance
	}
	return variance
}

// logistic is the chance of a log odds.
func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// logAge is ln(age + 1 s) of an age in seconds. The second that is added keeps it finite.
func logAge(age float64) float64 { return math.Log(age + 1) }

// binAt is the bin of an age by its logarithm: one before the first counts as the first.
//
// Bins are relative to the expected gap, so pieces with gaps of ten seconds and of ten minutes
// teach the same bins, and few observations are enough for the shape.
func binAt(logAge, scale float64) int {
	return int(max(0, min(bins-1, (logAge-scale-binStart)/binWidth)))
}

// refresh computes the next row of the value table. Rows are computed one at a time, so that no
// request waits for all of them.
//
// The value of a block that has reached the start of bin k is the maximum over later bin ends t of
//
//	P(used by t | not used yet) ÷ E[time held until the use or t]
//
// the index of the best time to hold it (Gittins): hits gained per time that a page is occupied.
func (m *model) refresh() {
	score := scoreLow + scoreStep*float64(m.row)
	var hazard [bins]float64
	for k := range bins {
		hazard[k] = logistic(m.bias[k].value + score)
	}
	for k := range bins {
		m.table[m.row][k] = math.Log(bestRate(hazard[:], binTime, k))
	}
	// Nothing is known behind the last bin: the value falls as the bins' widths grow.
	m.table[m.row][bins] = m.table[m.row][bins-1] - binWidth
	m.row = (m.row + 1) % scores
}

// logValue is ln of the value of a piece of an age in milliseconds: expected hits for each
// block and second.
func (m *model) logValue(p prediction, ageMillis int64) float64 {
	z := (logAge(float64(max(0, ageMillis))/1000) - p.scale - binStart) / binWidth
	s := (p.score - scoreLow) / scoreStep
	k, part := whole(z, bins)
	row, rest := whole(s, scores-1)
	lower, upper := &m.table[row], &m.table[row+1]
	return between(between(lower[k], lower[k+1], part), between(upper[k], upper[k+1], part), rest) -
		p.scale
}

// whole splits a place in a table of n steps into the step and how far in it the place is.
func whole(x float64, n int) (step int, part float64) {
	x = max(0, x)
	if x >= float64(n) {
		return n - 1, 1
	}
	step = int(x)
	return step, x - float64(step)
}

// between interpolates between two numbers, by a part of the way from the first to the second.
func between(a, b, part float64) float64 { return a + (b-a)*part }
