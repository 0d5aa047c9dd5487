package forecast

import (
	"math"
	"math/bits"
)

// The features of a piece, each a small integer. featureValues says how many values each has.
//
// Each has to pay for the observations that it takes from the others. Requests of the session, blocks of the prompt and the
// gap before a use were features once: the mean share of docs/policies.md is 0.2 to 0.5 points better without each of them.
const (
	featureNew        = iota // blocks of the prompt beyond the session's last prompt, as a power of two
	featureAnswer            // eighths of the answer's length in tokens, as a power of two
	featureAdded             // tokens beyond the session's last prompt and its answer, as a power of two; 0: a first prompt
	featureUses              // uses of the piece, 9 and more are one
	featureFront             // uses of the piece in front, 9 and more are one
	featurePace              // the session's pace in quarters, see session
	featureSuperseded        // 1: another prompt has branched off in front of the piece
	featureLast              // 1: the last block of a prompt
	featureReply             // length of the answer, apart for the first requests of a session, see replyFeature
	featureCount
)

// featureValues is the number of values that each feature may have.
var featureValues = [featureCount]int{16, 16, 26, 10, 10, 17, 2, 2, 32}

// Features describes one piece at the time of one use: featureBits bits for each feature. A piece keeps its features
// and not its prediction, so that what is learned later changes its value too.
type Features uint64

const (
	featureBits = 5
	featureMask = 1<<featureBits - 1
)

// at is the value of a feature.
func (f Features) at(feature int) int { return int(f >> (featureBits * feature) & featureMask) }

// with gives a feature, which is 0, a value.
func (f Features) with(feature int, value uint8) Features {
	return f | Features(value)<<(featureBits*feature)
}

// short is the features in 37 bits: superseded and last, which are 0 or 1, have one bit each, and those behind them follow. What a piece
// has above its features, as the number of its wait, is left out.
func (f Features) short() uint64 {
	const last, reply = featureBits * featureLast, featureBits * featureReply
	return uint64(f)&(1<<31-1) | uint64(f)>>last&1<<31 | uint64(f)>>reply&featureMask<<32
}

// longFeatures undoes short.
func longFeatures(short uint64) Features {
	const last, reply = featureBits * featureLast, featureBits * featureReply
	return Features(short&(1<<31-1) | short>>31&1<<last | short>>32<<reply)
}

// AsLast gives a piece that was used so often the features of the last block of a prompt, which counts as used once however often the
// prompt came.
func (f Features) AsLast(uses int) Features { return f.used(1, uses) | 1<<(featureBits*featureLast) }

// BeforeLast gives the features of the blocks in front of the last one: of a piece that was used so often behind one used front times.
func (f Features) BeforeLast(uses, front int) Features {
	return f.used(uses, front) &^ (1 << (featureBits * featureLast))
}

// used replaces the uses of a piece and of the one in front.
func (f Features) used(uses, front int) Features {
	const both = featureMask<<(featureBits*featureUses) | featureMask<<(featureBits*featureFront)
	return f&^both | Features(min(uses, 9))<<(featureBits*featureUses) | Features(min(front, 9))<<(featureBits*featureFront)
}

// HasLast tells whether the features are those of the last block of a prompt.
func (f Features) HasLast() bool { return f>>(featureBits*featureLast)&1 != 0 }

// prediction is what the model says of the next use of a piece. The scale is ln of the expected gap in seconds, the
// score the log odds that are added to every hazard.
type prediction struct{ scale, score float32 }

// fixed is a scale in units of 1/fixedUnit.
func fixed(x float32) int16 { return int16(math.Round(float64(max(-100, min(100, x))) * fixedUnit)) }

const fixedUnit = 256

// The hazard is a function of z = ln(age + 1 s) − scale in bins of equal width. The value has a table over score
// and z; ranges beyond it are clamped.
const (
	bins     = 32
	binStart = -7.0
	binWidth = 0.4

	scores    = 40 // rows of the value table
	scoreStep = 0.25
	scoreLow  = -6.5
)

// What is believed of the weights before anything was observed: variances of normal distributions around the
// values of newModel. They are in units of log odds, so they need not be fitted to a trace: a feature changes the odds
// of a use by a factor of e^√0.06 = 1.3, nine features together by about two; the shape of the hazard is
// known within a factor of two; and that a last or a superseded block is used at all is hardly known.
const (
	weightVariance = 0.06
	biasVariance   = 0.5
	markVariance   = 0.5
	// Traffic changes, so that each observation also makes weights a little less certain. They settle where ten
	// thousands of observations count, instead of all.
	drift = 1e-8
)

// Rates of learning of the expected gap, as measured on the traces of docs/policies.md.
const (
	// All features of one gap are corrected by its whole error, and a scale that moves also shifts
	// the bins that have been learned: with 0.1 for all the mean share of docs/policies.md is one point lower.
	scaleRate     = 0.025
	paceScaleRate = 0.05 // of the pace, which is measured in the same unit
	clipError     = 2.0
	baseWindow    = 200
)

// model predicts the time until a block is used again, and learns from blocks whose next use was seen.
//
// The expected gap is exp(base + Σ scales[i][f_i]). The hazard in bin k, the chance of a use in this bin if there
// was none before, is logistic(bias[k] + Σ weights[i][f_i]).
type model struct {
	base     float64
	baseSeen int
	scale    [featureCount][]scaleWeight
	weight   [featureCount][]weight
	// terms[i][v] = pack(scale[i][v].value, weight[i][v].value): in one place, and a quarter as long, since
	// a prediction is made for each comparison of victims.
	terms [featureCount][1 << featureBits]packed
	bias  [bins]weight

	table [scores][bins + 1]int32 // ln of the value at the start of each bin, times e^scale, in units of 1/unit
	row   int                     // the next row to be computed again
}

// scaleWeight is a term of the expected gap and the number of gaps that taught it.
type scaleWeight struct {
	value float64
	seen  int
}

// weight is a term of the score that is known as a normal distribution: what it probably is, and how uncertain that is.
type weight struct{ value, variance float64 }

// learn corrects the weight by its part of a gradient, and makes it more certain by its part of what was observed.
func (w *weight) learn(gradient, information float64) {
	w.value -= w.variance * gradient
	w.variance = w.variance*(1-w.variance*information) + drift
}

// newModel starts from a gap of 30 s, log-normal with σ = 1, and half of all blocks used again. That is between what
// people and agents do, and soon corrected. Superseded pieces and last blocks start with a low score, since both are
// consequences of how prompts grow and were found on every trace; otherwise the first minutes of a cache would be
// spent on learning them.
func newModel() *model {
	m := &model{base: math.Log(30)}
	for i, n := range featureValues {
		m.scale[i] = make([]scaleWeight, n)
		m.weight[i] = make([]weight, n)
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
	m.startWeight(featureSuperseded, -3)
	m.startWeight(featureLast, -1.2)
	for range scores {
		m.refresh()
	}
	return m
}

// startWeight is the weight that a feature of two values starts with.
func (m *model) startWeight(feature int, value float64) {
	m.weight[feature][1] = weight{value, markVariance}
	m.packTerm(feature, 1)
}

// edge is the lower end of a bin.
func edge(k int) float64 { return binStart + binWidth*float64(k) }

// binTime is the length of each bin in units of e^scale seconds.
var binTime = func() (t [bins]float64) {
	for k := range t {
		t[k] = math.Exp(edge(k+1)) - math.Exp(edge(k))
	}
	return t
}()

// packed is a scale and a score in one number, as integers in units of 1/unit, the scale in the upper half. A sum of
// such numbers has the sums of both, as long as they fit into 32 bits.
type packed int64

const unit = 1 << 16

// pack makes one number of both. A negative score takes one from the upper half, which scale gives back.
func pack(scale, score float64) packed { return packed(scale*unit)<<32 + packed(score*unit) }

func (t packed) scale() int32 { return int32((t - packed(t.score())) >> 32) }
func (t packed) score() int32 { return int32(t) }

// packTerm takes over the weights of one value of a feature, after either has changed.
func (m *model) packTerm(feature, value int) {
	m.terms[feature][value] = pack(m.scale[feature][value].value, m.weight[feature][value].value)
}

// sum gives the prediction for a piece by what is known now. A value of a feature that was never seen has terms of 0
// and changes nothing.
//
// It is most of what a comparison costs, so there is no loop over the features.
func (m *model) sum(f Features) packed {
	const mask, n = featureMask, featureBits
	t := &m.terms
	return pack(m.base, 0) + t[0][f&mask] + t[1][f>>n&mask] + t[2][f>>(2*n)&mask] + t[3][f>>(3*n)&mask] +
		t[4][f>>(4*n)&mask] + t[5][f>>(5*n)&mask] + t[6][f>>(6*n)&mask] + t[7][f>>(7*n)&mask] +
		t[8][f>>(8*n)&mask]
}

// It compiles as long as sum has all features.
var _ [9]packed = [featureCount]packed{}

// predict gives the prediction for a piece in floating point, for learning.
//
// Learning corrects what victims are compared by, so it begins with the same rounded sum.
func (m *model) predict(f Features) prediction {
	t := m.sum(f)
	return prediction{float32(t.scale()) / unit, float32(t.score()) / unit}
}

// learnGap corrects the expected gap after one was seen, with ln of its length in seconds.
// Last blocks teach nothing about gaps: most are never used again, and the others with the
// block in front.
func (m *model) learnGap(f Features, logGap float64) {
	if f.at(featureLast) == 1 {
		return
	}
	e := clip(logGap - float64(m.predict(f).scale))
	for i := range featureCount {
		v := f.at(i)
		w := &m.scale[i][v]
		w.seen++
		rate := scaleRate
		if i == featurePace {
			rate = paceScaleRate
		}
		w.value += rate * e / math.Sqrt(float64(w.seen))
		m.packTerm(i, v)
	}
	m.baseSeen = min(m.baseSeen+1, baseWindow)
	m.base += e / float64(m.baseSeen+10)
}

// clip bounds the error of one gap. A session that returns after a night is a factor of thousands away from its
// expected gap, and would move the scale of all pieces by more than everything before.
func clip(e float64) float64 { return max(-clipError, min(clipError, e)) }

// learnBin corrects the hazard of one bin: the block was used within it, or outlived it.
//
// All terms of the score are corrected together, each by its share in what is uncertain of their sum: a step of the
// extended Kalman filter for a logistic observation, with the covariances left out. A term that has been observed
// often barely moves, a rare value of a feature moves as far as its first observations say. Steps by gradients alone
// (AdaGrad) were rejected: the mean share of docs/policies.md is two points lower, because weights that were seen a few
// dozen times are still far from what the observations say.
func (m *model) learnBin(f Features, bin int, used bool) {
	chance := logistic(m.bias[bin].value + float64(m.predict(f).score))
	gradient, information := chance, chance*(1-chance)
	if used {
		gradient--
	}
	// Last blocks are sampled by themselves, so they correct their own weight only.
	if f.at(featureLast) == 1 {
		share := 1 / (1 + information*m.weight[featureLast][1].variance)
		m.learnWeight(featureLast, 1, gradient*share, information*share)
		return
	}
	uncertain := m.bias[bin].variance
	for i := range featureCount {
		uncertain += m.weight[i][f.at(i)].variance
	}
	share := 1 / (1 + information*uncertain)
	m.bias[bin].learn(gradient*share, information*share)
	for i := range featureCount {
		m.learnWeight(i, f.at(i), gradient*share, information*share)
	}
}

// batchChance is up to which sum of chances bins are learned as one observation.
const batchChance = 0.05

// outlive corrects the hazards of the bins from one up to another, which a block has outlived. It is learnBin for each
// of them, but the first bins that a block outlives have chances of a thousandth, and do not change what the next one
// is corrected by: together they are one correction of the weights.
func (m *model) outlive(f Features, from, to int) {
	if f.at(featureLast) == 1 {
		for k := from; k < to; k++ {
			m.learnBin(f, k, false)
		}
		return
	}
	for k := from; k < to; {
		score, uncertain := float64(m.predict(f).score), 0.0
		for i, g := 0, f; i < featureCount; i, g = i+1, g>>featureBits {
			uncertain += m.weight[i][g&featureMask].variance
		}
		gradient, information, first := 0.0, 0.0, k
		// The weights are as before for all bins of the batch, so the prediction is made once. Each bin has a
		// bias of its own, which is corrected at once.
		for sum := 0.0; k < to && sum < batchChance; k++ {
			b := &m.bias[k]
			chance := logistic(b.value + score)
			share := chance / (1 + chance*(1-chance)*(uncertain+b.variance))
			b.learn(share, share*(1-chance))
			gradient, information, sum = gradient+share, information+share*(1-chance), sum+chance
		}
		for i, g := 0, f; i < featureCount; i, g = i+1, g>>featureBits {
			m.learnWeight(i, int(g&featureMask), gradient, information)
			m.weight[i][g&featureMask].variance += float64(k-first-1) * drift
		}
	}
}

// learnWeight corrects the weight of one value of a feature.
func (m *model) learnWeight(feature, value int, gradient, information float64) {
	w := &m.weight[feature][value]
	w.learn(gradient, information)
	m.packTerm(feature, value)
}

// logistic is the chance of a log odds. The table of expScale gives it to a hundred thousandth of itself.
func logistic(x float64) float64 { return 1 / (1 + float64(expScale(-float32(x)))) }

// binOf is the bin of an age in seconds: a negative one counts as the first.
//
// Bins are relative to the expected gap, so pieces with gaps of ten seconds and of ten minutes teach the same bins, and
// few observations are enough for the shape. The second that is added keeps the logarithm of the age 0 finite.
func binOf(age float64, scale float64) int {
	return binAt(logAge(age), scale)
}

// logAge is ln(age + 1 s) of an age in seconds.
func logAge(age float64) float64 { return float64(logOf(float32(age + 1))) }

// binAt is the bin of an age by its logarithm.
func binAt(logAge, scale float64) int {
	return int(max(0, min(bins-1, (logAge-scale-binStart)/binWidth)))
}

// stretch is a number of adjoining bins, for a block that has reached the first of them: the chance of a use in them,
// the time held until the use or their end, and the chance that there was none.
type stretch struct{ used, held, alive float64 }

// add continues a stretch with the one behind it.
func (s *stretch) add(next stretch) {
	s.used += s.alive * next.used
	s.held += s.alive * next.held
	s.alive *= next.alive
}

// refresh computes the next row of the value table. Rows are computed one at a time, so that no request waits for
// all of them.
//
// The value of a block that has reached the start of bin k is the maximum over later bin ends t of
//
//	P(used by t | not used yet) ÷ E[time held until the use or t]
//
// the index of the best time to hold it (Gittins): hits gained per time that a page is occupied.
//
// The bins are visited from the last on. Those behind bin k form stretches, each the best time to hold a block from
// its start on, and each worth more than the next. A block that starts in bin k is best held through all stretches
// that are worth more than what was gained before them. A stretch that is added once is never looked at again, so a row
// costs O(bins); trying every end for every bin took a tenth of the policy's time.
func (m *model) refresh() {
	score := scoreLow + scoreStep*float64(m.row)
	var hazard [bins]float64
	for k := range bins {
		hazard[k] = logistic(m.bias[k].value + score)
	}
	var stops [bins]stretch
	n := 0
	for k := bins - 1; k >= 0; k-- {
		h := hazard[k]
		now := stretch{used: h, held: binTime[k] * (1 - h/2), alive: 1 - h}
		for n > 0 && now.used*stops[n-1].held < stops[n-1].used*now.held {
			n--
			now.add(stops[n])
		}
		stops[n] = now
		n++
		m.table[m.row][k] = int32(unit * logOf(float32(now.used/now.held)))
	}
	// Nothing is known behind the last bin: the value falls as the bins' widths grow.
	m.table[m.row][bins] = m.table[m.row][bins-1] - binStep
	m.row = (m.row + 1) % scores
}

// binStep is the width of a bin in units of 1/unit.
const binStep = 26214

// value is the value of a piece of an age in milliseconds: expected hits for each block and second.
func (m *model) value(p prediction, ageMillis int64) float32 {
	return expScale(float32(m.rank(int32(p.scale*unit), int32(p.score*unit), ageMillis)) / unit)
}

// rank is ln of the value, in units of 1/unit. Victims are compared by it, so it takes integers, two tables
// and no exponential.
func (m *model) rank(scale, score int32, ageMillis int64) int32 {
	z := (int64(logSeconds(ageMillis)-scale) - binStart*unit) * (unit / binWidth) >> 16
	s := (int64(score) - scoreLow*unit) * (1 / scoreStep)
	if z < 0 {
		z = 0
	} else if z >= bins*unit {
		z = bins*unit - 1
	}
	if s < 0 {
		s = 0
	} else if s >= (scores-1)*unit {
		s = (scores-1)*unit - 1
	}
	k, rest := z>>16, z%unit
	lower, upper := &m.table[s>>16], &m.table[s>>16+1]
	low := between(lower[k], lower[k+1], rest)
	high := between(upper[k], upper[k+1], rest)
	return between(low, high, s%unit) - scale
}

// between interpolates between two numbers, by units of the way from the first to the second.
//
// The product needs 64 bits: neighbours in the table may be half a unit apart, and the way has 16 bits.
func between(a, b int32, part int64) int32 { return a + int32(int64(b-a)*part>>16) }

// logSeconds is ln(age + 1 s) of an age in milliseconds, in units of 1/unit. The bits of the number give the power of
// two, and a table the logarithm of the rest, between whose entries it is interpolated.
func logSeconds(ageMillis int64) int32 {
	x := uint64(ageMillis) + 1000
	n := bits.Len64(x) - 1
	x <<= 63 - n
	at, rest := x>>(63-logBits)&(1<<logBits-1), x>>(63-logBits-16)&(unit-1)
	return int32(n)*log2 - log1000 + between(logs[at], logs[at+1], int64(rest))
}

const (
	logBits = 7
	log2    = 45426  // ln 2 in units of 1/unit
	log1000 = 452704 // ln 1000
)

// logs has the logarithms of the numbers from 1 to 2.
var logs = func() (t [1<<logBits + 1]int32) {
	for i := range t {
		t[i] = int32(math.Round(unit * math.Log(1+float64(i)/(1<<logBits))))
	}
	return t
}()

// logOf is ln x. The exponent of the number gives the power of two, a polynomial the fraction; the error is below 0.0003,
// a thousandth of a bin.
func logOf(x float32) float32 {
	bits := math.Float32bits(x)
	exponent := int32(bits>>23) - 127
	x = math.Float32frombits(bits&(1<<23-1)|127<<23) - 1
	// ln(1+x) on [0, 1), a minimax polynomial.
	p := x * (0.9998843 + x*(-0.4974149+x*(0.3157632+x*(-0.1903543+x*(0.0826912+x*-0.0174214)))))
	return float32(exponent)*0.6931472 + p
}

// expScale is e^x by a table over quarters and a cubic for the rest: scales lie within ±20.
func expScale(x float32) float32 {
	// min and max would look for what is no number.
	if x += expRange; !(x > 0) {
		x = 0
	} else if x > 2*expRange-0.25 {
		x = 2*expRange - 0.25
	}
	at := uint(x * 4)
	r := x - float32(at)*0.25
	return exps[at] * (1 + r*(1+r*(0.5+r*(1.0/6+r*(1.0/24)))))
}

const expRange = 20

var exps = func() (t [8 * expRange]float32) {
	for i := range t {
		t[i] = float32(math.Exp(float64(i)/4 - expRange))
	}
	return t
}()
