package hfconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvactor/kvactor/windows"
)

// readLayers fills in the layers by the rules of the model type.
func (r *reading) readLayers() {
	rules, known := r.table.families[r.kind]
	if r.rules = rules; !known {
		r.rules = r.table.plain
	}
	if why, refused := strings.CutPrefix(r.rules.note, "!"); refused {
		r.config.say("%s %q is not supported: %s", r.table.word, r.kind, why)
		return
	}
	if keys := strings.Join(r.unread(), ", "); !r.identify(known, keys) {
		return
	}
	if r.config.has("use_bidirectional_attention") &&
		r.config.values["use_bidirectional_attention"] == true {
		r.config.say("use_bidirectional_attention: an encoder has no cache")
	}
	if v := r.rule("", "causal"); v.known && v.number == 0 {
		r.config.say("%s is off: an encoder has no cache", v.key)
	}
	if v := r.rule("", "drafts"); v.number > 0 {
		r.drafts = v.number
	}
	if r.drafts > 0 && r.table == headers() {
		v := r.rule("", "drafts")
		r.note(fmt.Sprintf(
			"blocks that draft tokens (%s %d) are left out: they have a cache of their own", v.key,
			v.number))
	}
	n := r.size("layers")
	if n > windows.MaxLayers {
		r.config.say("%d layers are more than %d", n, windows.MaxLayers)
		n = 1
	}
	r.count = n
	var beside []layer
	for r.layer = range n {
		kind := r.kindOfLayer()
		r.layers = append(r.layers, r.oneLayer(kind))
		if v := r.rule(kind, "beside"); v.on() {
			beside = append(beside, r.oneLayer(v.text))
		}
	}
	r.share()
	r.repeat()
	r.layers = append(r.layers, beside...)
	r.noteIndex()
}

// identify says what is known of the type, and of the keys that no rule reads. It is
// false if nothing can be read.
func (r *reading) identify(known bool, keys string) bool {
	switch {
	case !known && keys != "":
		r.config.say("%s %q is not known, nor what these keys mean for its cache: %s", r.table.word,
			r.kind, keys)
		return false
	case !known && r.options.Strict:
		r.config.say("%s %q is not known", r.table.word, r.kind)
	case known && keys != "" && r.options.Strict:
		r.config.say("what these keys mean for the cache of %s %q is not known: %s", r.table.word, r.kind,
			keys)
	case !known:
		r.note(r.table.word + " " + strconv.Quote(r.kind) + " is not known: read as plain attention")
	case keys != "":
		r.note("these keys are not known to bear on the cache and were not used: " + keys)
	}
	if known && r.rules.note != "" {
		r.note(r.rules.note)
	}
	return true
}

func choose(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// rule evaluates a rule of the kind of a layer, or of all kinds. It is absent if there
// is none.
func (r *reading) rule(kind, name string) value {
	e := r.rules.find(kind + "." + name)
	if e == nil {
		e = r.rules.find(name)
	}
	if e == nil {
		return value{key: name}
	}
	return r.evaluate(e)
}

// size is a rule that must come to 1 or more.
func (r *reading) size(name string) int { return r.sizeOf("", name) }

func (r *reading) sizeOf(kind, name string) int {
	v := r.present(r.rule(kind, name))
	if v.number < 1 || v.number > 1<<31-1 {
		r.problem("%s %d is not 1 or more", choose(v.key == "", name, v.key), v.number)
		return 1
	}
	return v.number
}

// keeps reports whether layers of a kind keep something.
func (r *reading) keeps(kind, what string) bool { return r.rules.find(kind+"."+what) != nil }

// kindOfLayer is the kind of the layer r.layer.
func (r *reading) kindOfLayer() string {
	v := r.rule("", "kind")
	if !v.known {
		r.problem("%s is missing", v.key)
		return "none"
	}
	kind := choose(v.text == "", strconv.Itoa(v.number), v.text)
	if e := r.rules.find("@" + kind); e != nil {
		kind = word(e)
	}
	if kind != "none" && !r.keeps(kind, "latent") && !r.keeps(kind, "kv") && !r.keeps(kind, "state") {
		of := fmt.Sprintf("%s: %q of layer ", v.key, v.text)
		// the first is enough
		if !slices.ContainsFunc(*r.config.problems,
			func(p string) bool { return strings.HasPrefix(p, of) }) {
			r.problem("%s%d is not known", of, r.layer)
		}
	}
	return kind
}

// oneLayer reads the layer r.layer as one of a kind.
func (r *reading) oneLayer(kind string) layer {
	var l layer
	switch {
	case r.keeps(kind, "latent"):
		l.heads, l.shape = 1, windows.Shape{HeadDim: r.perToken(kind, r.sizeOf(kind, "latent")),
			KVFactor: 1}
	case r.keeps(kind, "kv"):
		l = r.attention(kind)
	}
	if l.heads > 0 {
		l.shape.SideBytes = r.perToken(kind, r.indexBytes(r.rule(kind, "index")))
	}
	if r.keeps(kind, "window") {
		l.window = r.sizeOf(kind, "window")
	}
	if r.keeps(kind, "chunk") {
		l.chunk = r.sizeOf(kind, "chunk")
	}
	if r.keeps(kind, "state") {
		l.state = r.state(kind)
	}
	return l
}

// attention is a layer with keys and values. A list of heads has 0 for a layer without.
func (r *reading) attention(kind string) layer {
	heads := r.present(r.rule(kind, "heads"))
	_, list := r.config.values[heads.key].([]any)
	if list && heads.number == 0 {
		return layer{}
	}
	if heads.number < 1 {
		r.problem("%s %d is not 1 or more", heads.key, heads.number)
		return layer{}
	}
	n, ok := r.divided(heads.number)
	if !ok {
		r.problem("%d KV heads cannot be divided between %d devices", heads.number, r.tp)
	} else if !list {
		r.checkQueries(kind, heads.number)
	}
	dim := r.sizeOf(kind, "dim")
	l := layer{heads: n, shape: windows.Shape{HeadDim: dim}}
	if v := r.rule(kind, "value"); v.on() && v.number != dim {
		l.shape.ValueDim = v.number
	}
	return l
}

// perToken is the part that one token has of a row that stands for several.
func (r *reading) perToken(kind string, n int) int {
	v := r.rule(kind, "rate")
	if !v.known {
		return n
	}
	if v.number < 1 || n%v.number != 0 {
		r.problem("%s: %d tokens do not divide a row of %d", v.key, v.number, n)
		return 1
	}
	return n / v.number
}

// scaledElements is how many elements of the key of an index share a scale, scaleBytes
// what that takes.
const scaledElements, scaleBytes = 128, 4

// indexBytes is what the key of an index with so many elements takes.
func (r *reading) indexBytes(v value) int {
	n := v.number
	if n < 0 || n > 1<<20 {
		r.problem("%s %d is not a number of elements", v.key, n)
		return 0
	}
	if t := r.indexType(); t != windows.FP8 {
		return n * t.Bytes()
	}
	return n + (n+scaledElements-1)/scaledElements*scaleBytes
}

// indexType is the element type of the keys of an index.
func (r *reading) indexType() windows.DType {
	switch t := windows.DType(r.options.IndexDType); {
	case t == "" && r.table == headers():
		return windows.Float16
	case t == "" || t == windows.FP8:
		return windows.FP8
	default:
		return r.named(string(t), "keys of an index")
	}
}

// noteIndex says how keys of an index are planned.
func (r *reading) noteIndex() {
	n := 0
	for _, l := range r.layers {
		if l.heads > 0 && l.shape.SideBytes > 0 {
			n++
		}
	}
	if n > 0 {
		r.note(fmt.Sprintf("%d of %d layers keep keys of an index for sparse attention, planned as %s", n,
			len(r.layers), r.indexType()))
	}
}

// checkQueries refuses query heads that cannot be divided between the KV heads or the devices.
func (r *reading) checkQueries(kind string, heads int) {
	switch q := r.rule(kind, "query"); {
	case q.number < 1: // the rules did not need them
	case q.number%heads != 0:
		r.problem("%d query heads cannot be divided between %d KV heads", q.number, heads)
	case q.number%r.tp != 0:
		r.problem("%d query heads cannot be divided between %d devices", q.number, r.tp)
	}
}

// state is the bytes of a state: the last inputs of a convolution, one fewer than its
// kernel, since the newest comes with the token, and the recurrent state, which is
// often kept in more bits than keys and values, because errors add up over the tokens.
func (r *reading) state(kind string) int64 {
	recurrent := r.stateType()
	if r.rule(kind, "f32").on() {
		recurrent = windows.Float32
	}
	conv, rec := r.present(r.rule(kind, "conv")), r.present(r.rule(kind, "rec"))
	return int64(conv.number)*int64(r.named(r.options.ConvDType, "states").Bytes()) +
		int64(rec.number)*int64(recurrent.Bytes())
}

// share makes layers read the keys and values of others: the last ones those of the
// last layer before them with the same window, or each of a group those of its first.
func (r *reading) share() {
	if v := r.rule("", "group"); v.number > 1 {
		for i := range r.layers {
			if owner := i - i%v.number; owner < i {
				r.layers[i].shares, r.layers[i].heads = owner+1, 0
			}
		}
	}
	v := r.rule("", "shared")
	own := len(r.layers) - v.number
	if v.number < 0 || own < 1 {
		r.config.say("%s %d is not less than the %d layers", v.key, v.number, len(r.layers))
		return
	}
	for i := own; i < len(r.layers); i++ {
		for j := own - 1; j >= 0 && r.layers[i].shares == 0; j-- {
			if r.layers[j].window == r.layers[i].window {
				r.layers[i].shares = j + 1
			}
		}
		if r.layers[i].shares == 0 {
			r.problem("%s: no layer has keys and values for layer %d", v.key, i)
		}
		r.layers[i].heads = 0
	}
}

// repeat is for models that run layers several times, and keep each run: all of them, or
// those of a range.
func (r *reading) repeat() {
	v := r.rule("", "runs")
	if !v.known {
		return
	}
	from, to := 0, len(r.layers)
	if first, last := r.rule("", "from"), r.rule("", "to"); first.known && last.known {
		from, to = first.number, last.number
	}
	if from < 0 || to < from || to > len(r.layers) {
		r.config.say("%s: there are no layers %d to %d", v.key, from, to)
		return
	}
	if v.number < 1 || v.number > windows.MaxLayers || v.number*len(r.layers) > windows.MaxLayers {
		r.config.say("%s %d is not a number of runs", v.key, v.number)
		return
	}
	r.layers = slices.Concat(r.layers[:from], slices.Repeat(r.layers[from:to], v.number),
		r.layers[to:])
}

// encoder makes the layers attend to an encoder's output too, with the heads of their
// own attention, unless the file is of a decoder alone.
func (r *reading) encoder(top *config) {
	v := r.rule("", "encoder")
	if !v.known || len(r.layers) == 0 {
		return
	}
	if a := top.texts("architectures"); len(a) > 0 && strings.HasSuffix(a[0], "ForCausalLM") {
		r.note("the architecture " + a[0] + " is a decoder alone: there is no cross attention")
		return
	}
	r.model.CrossLayers, r.model.CrossKVHeads, r.model.EncoderMaxLen = len(r.layers),
		r.layers[0].heads, v.number
}

// stateType is the element type of recurrent states: the host's choice, else the
// file's, else that of the model.
func (r *reading) stateType() windows.DType {
	name := r.options.StateDType
	for _, key := range []string{"mamba_ssm_cache_dtype", "mamba_ssm_dtype"} {
		if name == "" || name == windows.AutoDType {
			name = r.config.text(key)
		}
	}
	return r.named(name, "states")
}

// named is the element type of something by its name, that of the model for none.
func (r *reading) named(name, of string) windows.DType {
	if name == "" || name == windows.AutoDType {
		return r.dtype
	}
	d, ok := dtypes[strings.TrimPrefix(name, "torch.")]
	if !ok {
		r.problem("the element type %q of %s is not one of bfloat16, float16, float32", name, of)
		return windows.Float32
	}
	return d
}

// split is the share of one device of heads of states. They cannot be repeated as KV
// heads are: each device updates its own.
func (r *reading) split(n int, what string) int {
	if n%r.tp != 0 {
		r.problem("%d %s cannot be divided between %d devices", n, what, r.tp)
	}
	return max(1, n/r.tp)
}
