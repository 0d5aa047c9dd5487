package forecast

import "math"

// The features of a piece, each a small integer. features.counts says how many values each has.
const (
	featureTurn       = iota // requests of the session before this one, as a power of two
	featureNew               // blocks of the prompt beyond the session's last prompt, as a power of two
	featureAnswer            // eighths of the answer's length in tokens, as a power of two
	featureGap               // time between the last two uses of the piece, in half octaves of a second; 0: one use
	featurePrompt            // blocks of the prompt, as a power of two
	featureUses              // uses of the piece, 9 and more are one
	featurePace              // the session's pace in quarters, see session
	featureSuperseded        // 1: another prompt has branched off in front of the piece
	featureLast              // 1: the last block of a prompt
	featureCount
)

// featureValues is the number of values that each feature may have.
var featureValues = [featureCount]int{8, 16, 16, 26, 20, 10, 17, 2, 2}

// features describes one piece at the time of one use.
type features [featureCount]uint8

// Forecast is what the model predicts of one piece. It does not change until the piece is used again; its value
// falls and rises with the piece's age. Scale is ln of the expected gap in seconds, Score the log odds that are
// added to every hazard; both in units of 1/forecastUnit.
type Forecast struct {
	Scale, Score int16
}

const forecastUnit = 256

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

// Rates of learning, as measured on the traces of docs/policies.md.
const (
	weightRate = 0.03
	biasRate   = 0.8
	lastRate   = 0.4 // of the weight of last blocks
	scaleRate  = 0.1
	clipError  = 2.0
	baseWindow = 200
)

// model predicts the time until a block is used again, and learns from blocks whose next use was seen.
//
// The expected gap is exp(base + Σ scales[i][f_i]). The hazard in bin k, the chance of a use in this bin if there
// was none before, is logistic(bias[k] + Σ weights[i][f_i]).
type model struct {
	base     float64
	baseSeen int
	scale    [featureCount][]scaleWeight
	weight   [featureCount][]rateWeight
	bias     [bins]rateWeight

	table [scores][bins + 1]float32 // value at the start of each bin, times e^scale
	row   int                       // the next row to be computed again
}

// scaleWeight is a term of the expected gap and the number of gaps that taught it.
type scaleWeight struct {
	value float64
	seen  int
}

// rateWeight is a weight with the sum of its squared gradients (AdaGrad).
type rateWeight struct{ value, squares float64 }

// step moves the weight against a gradient.
func (w *rateWeight) step(gradient, rate float64) {
	w.squares += gradient * gradient
	w.value -= rate * gradient / (math.Sqrt(w.squares) + 1e-6)
}

// newModel starts from a gap of 30 s, log-normal with σ = 1, and half of all blocks used again.
func newModel() *model {
	m := &model{base: math.Log(30)}
	for i, n := range featureValues {
		m.scale[i] = make([]scaleWeight, n)
		m.weight[i] = make([]rateWeight, n)
	}
	normal := func(z float64) float64 { return 0.5 * (1 + math.Erf(z/math.Sqrt2)) }
	for k := range m.bias {
		from, to := normal(edge(k)), normal(edge(k+1))
		h := 0.5 * (to - from) / (1 - 0.5*from)
		m.bias[k].value = max(-9, math.Log(h/(1-h)))
	}
	m.weight[featureSuperseded][1].value = -3
	m.weight[featureLast][1].value = -1.2
	for range scores {
		m.refresh()
	}
	return m
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

// predict gives the forecast of a piece.
func (m *model) predict(f *features) Forecast {
	scale, score := m.base, 0.0
	for i, v := range f {
		scale += m.scale[i][v].value
		score += m.weight[i][v].value
	}
	return Forecast{Scale: fixed(scale), Score: fixed(score)}
}

// fixed rounds to the unit of a Forecast.
func fixed(x float64) int16 {
	return int16(math.Round(max(-100, min(100, x)) * forecastUnit))
}

// learnGap corrects the expected gap after one was seen, with ln of its length in seconds.
// Last blocks teach nothing about gaps: most are never used again, and the others with the
// block in front.
func (m *model) learnGap(f *features, logGap float64) {
	if f[featureLast] == 1 {
		return
	}
	predicted := m.base
	for i, v := range f {
		predicted += m.scale[i][v].value
	}
	e := clip(logGap - predicted)
	for i, v := range f {
		w := &m.scale[i][v]
		w.seen++
		w.value += scaleRate * e / math.Sqrt(float64(w.seen))
	}
	m.baseSeen = min(m.baseSeen+1, baseWindow)
	m.base += e / float64(m.baseSeen+10)
}

func clip(e float64) float64 { return max(-clipError, min(clipError, e)) }

// learnBin corrects the hazard of one bin: the block was used within it, or outlived it.
func (m *model) learnBin(f *features, bin int, used bool) {
	x := m.bias[bin].value
	for i, v := range f {
		x += m.weight[i][v].value
	}
	g := logistic(x)
	if used {
		g--
	}
	// Last blocks are sampled by themselves, so they correct their own weight only.
	if f[featureLast] == 1 {
		m.weight[featureLast][1].step(g, lastRate)
		return
	}
	m.bias[bin].step(g, biasRate)
	for i, v := range f {
		m.weight[i][v].step(g, weightRate)
	}
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// binOf is the bin of an age in seconds: a negative one counts as the first.
func binOf(age float64, scale float64) int {
	return int(max(0, min(bins-1, (math.Log(age+1)-scale-binStart)/binWidth)))
}

// refresh computes the next row of the value table. Rows are computed one at a time, so that no request waits for
// all of them.
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
		alive, held, best := 1.0, 0.0, 0.0
		for j := k; j < bins; j++ {
			held += alive * binTime[j] * (1 - hazard[j]/2)
			alive *= 1 - hazard[j]
			best = max(best, (1-alive)/held)
		}
		m.table[m.row][k] = float32(best)
	}
	// Nothing is known behind the last bin: the value falls as the bins' widths grow.
	m.table[m.row][bins] = m.table[m.row][bins-1] * float32(math.Exp(-binWidth))
	m.row = (m.row + 1) % scores
}

// value is the value of a piece of an age in milliseconds: expected hits for each block and second.
func (m *model) value(f Forecast, ageMillis int64) float32 {
	scale := float32(f.Scale) / forecastUnit
	z := (logSeconds(ageMillis) - scale - binStart) / binWidth
	s := (float32(f.Score)/forecastUnit - scoreLow) / scoreStep
	z, s = max(0, min(bins-0.001, z)), max(0, min(scores-1.001, s))
	zi, si := int(z), int(s)
	zf, sf := z-float32(zi), s-float32(si)
	lower, upper := &m.table[si], &m.table[si+1]
	low := lower[zi] + zf*(lower[zi+1]-lower[zi])
	high := upper[zi] + zf*(upper[zi+1]-upper[zi])
	return (low + sf*(high-low)) * expScale(-scale)
}

// logSeconds is ln(age + 1 s) of an age in milliseconds. The exponent of the number gives the power of two, a
// polynomial the fraction; the error is below 0.0003, a thousandth of a bin.
func logSeconds(ageMillis int64) float32 {
	bits := math.Float32bits(float32(ageMillis)*1e-3 + 1)
	exponent := int32(bits>>23) - 127
	x := math.Float32frombits(bits&(1<<23-1)|127<<23) - 1
	// ln(1+x) on [0, 1), a minimax polynomial.
	p := x * (0.9998843 + x*(-0.4974149+x*(0.3157632+x*(-0.1903543+x*(0.0826912+x*-0.0174214)))))
	return float32(exponent)*0.6931472 + p
}

// expScale is e^x by a table over quarters and a cubic for the rest: scales lie within ±20.
func expScale(x float32) float32 {
	x = max(-expRange, min(expRange-0.25, x))
	at := int((x + expRange) * 4)
	r := x + expRange - float32(at)*0.25
	return exps[at] * (1 + r*(1+r*(0.5+r*(1.0/6+r*(1.0/24)))))
}

const expRange = 20

var exps = func() (t [8 * expRange]float32) {
	for i := range t {
		t[i] = float32(math.Exp(float64(i)/4 - expRange))
	}
	return t
}()
