package hfconfig

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/windows"
)

// Model is the geometry of a published model.
type Model struct {
	// Preset has the shape for an engine and, apart from it, the windows: those belong to the
	// configuration of a cache, where a host may replace them.
	windows.Preset
	// Type is the model_type of the text part.
	Type string
	// Notes are sentences on what was assumed where the file does not say it.
	Notes []string
}

// Configure returns the configuration with the windows of the model, unless it
// has windows of its own.
// The list is the model's own: a caller that changes it changes the model.
func (m Model) Configure(c windows.Config) windows.Config {
	if c.MaxAttentionWindow == nil {
		c.MaxAttentionWindow = m.MaxAttentionWindow
	}
	return c
}

// Options change how a file is read. The zero value reads it as it is.
type Options struct {
	// TensorParallel is the number of devices that a layer is divided between; 0
	// stands for 1. The model is then that of one device: it has its share of the
	// heads and states. KV heads are repeated if there are fewer than devices, and a
	// latent vector is the same on each device.
	TensorParallel int
	// StateDType is the element type of recurrent states, as
	// mamba_ssm_cache_dtype of a windows.Config: "" and "auto" take it from the
	// file.
	StateDType string
	// ConvDType is the element type of the states of convolutions; "": that of the
	// model.
	ConvDType string
	// IndexDType is the element type of the keys of a sparse attention's index: bfloat16,
	// float16, float32 or fp8. fp8 has a scale of four bytes for each 128 elements, as
	// DeepSeek's models store them. "": fp8 for a config.json, float16 for a GGUF file.
	IndexDType string
	// Strict refuses a model type that the package does not know, although all its keys
	// are those of plain attention, and a key of a known type that no rule names. Without
	// it such a model is read, with a note.
	Strict bool
	// MaxSeqLen replaces the longest sequence of the file; 0: the file's.
	MaxSeqLen int
}

// Open reads a config.json, or that in a folder.
// An error that is no refusal is that of the file system.
func Open(path string, o Options) (Model, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	file, err := os.Open(path)
	if err != nil {
		return Model{}, err
	}
	// Nothing is written, so an error of Close tells nothing.
	defer file.Close()
	top, err := parse(file)
	if err != nil {
		return Model{}, err
	}
	beside, err := quantised(filepath.Dir(path))
	if err != nil {
		return Model{}, err
	}
	return readConfig(top, beside, o)
}

// Read reads a config.json. The error is a refusal: ErrBadRequest if the text is no
// JSON object, else ErrConfigInvalid with every problem, each naming its key.
func Read(r io.Reader, o Options) (Model, error) {
	top, err := parse(r)
	if err != nil {
		return Model{}, err
	}
	return readConfig(top, nil, o)
}

// ReadHeader reads the metadata of a GGUF header: strings, booleans, int and []any by the
// keys of its architecture, without the architecture's name. Package gguf uses it.
// Keys that are absent have no defaults but those of architectures.txt. The values are
// only read.
func ReadHeader(architecture string, values map[string]any, o Options) (Model, error) {
	c := &config{values: values, problems: new([]string)}
	r := &reading{config: c, table: headers(), kind: architecture, options: o, dtype: windows.Float16}
	if architecture == "" {
		c.say("general.architecture is missing")
	}
	return r.read(c)
}

// readConfig is Read for objects that are parsed: that of config.json, and that of the
// quantisation beside it, if there is one.
func readConfig(top, beside *config, o Options) (Model, error) {
	c := textPart(top)
	r := &reading{config: c, table: configs(), kind: kindOf(c, top), options: o}
	c.defaults = defaults()[r.kind]
	r.dtype = r.elements(top)
	r.cache = r.cacheType(top, beside)
	return r.read(top)
}

// read is what files of both kinds share.
func (r *reading) read(top *config) (Model, error) {
	c, o := r.config, r.options
	r.tp = max(1, o.TensorParallel)
	if o.TensorParallel < 0 {
		c.say("tensor parallelism over %d devices", o.TensorParallel)
	}
	r.readLayers()
	if r.model.MaxSeqLen = o.MaxSeqLen; o.MaxSeqLen == 0 && len(r.layers) > 0 {
		r.model.MaxSeqLen = r.size("length")
	}
	r.encoder(top)
	// Not before all layers are read, so that one error has every problem of the file.
	if err := c.err(); err != nil {
		return Model{}, err
	}
	m := r.finish()
	m.Type = r.kind
	return m, m.valid()
}

// valid refuses what no engine could be made for: a file may be read without problems
// and still have, for example, windows of one token.
func (m Model) valid() error {
	// The defaults of a cache: what is wrong then is wrong with the model.
	c := m.Configure(windows.DefaultConfig())
	if m.Encodes() {
		c.CrossKVCacheFraction = 0.5 // any fraction serves here, but one there must be
	}
	_, err := windows.Pools(m.Model, c)
	return err
}

// A model that reads images or sound has a part for each encoder beside the
// language model, and only the language model has a cache. Some files nest the part
// twice.

// textParts are the keys under which models with several parts keep the
// configuration of the language model.
// The first one that a file has is followed.
var textParts = []string{"text_config", "llm_config", "language_config", "thinker_config"}

// textPart is the part of the configuration that describes the language model.
// The depth of the recursion is that of the JSON text, which the decoder bounds.
func textPart(top *config) *config {
	for _, key := range textParts {
		if part := top.part(key); part != nil {
			return textPart(part)
		}
	}
	return top
}

// kindOf is the model type of the text part. Files that nest their text part
// without a type name the whole model only; the readers know these names too.
func kindOf(c, top *config) string {
	if kind := c.text("model_type"); kind != "" {
		return kind
	}
	return top.text("model_type")
}

// layer is what one layer keeps. A layer without heads and state keeps nothing.
// The readers of model types fill a list of layers; finish turns the list into the
// fields of windows.Model, in which what all layers share is written once.
type layer struct {
	heads  int // of keys and values; 0: none
	shape  windows.Shape
	window int // 0: full attention
	chunk  int
	shares int   // 1 + the layer whose keys and values it reads; 0: its own
	state  int64 // bytes; 0: none
}

// reading is a model under construction. Problems are recorded in the config and
// reading goes on with harmless values, so that one error lists everything that is
// wrong with a file.
// The fields before layers are set before any reader of a model type runs, and readers
// change only layers, model and notes.
type reading struct {
	config  *config
	table   *table
	kind    string
	options Options
	// tp is 1 or more: readers divide by it.
	tp     int
	dtype  windows.DType
	cache  windows.DType // of keys and values, if not dtype
	rules  *family
	layer  int // that is being read
	count  int // of layers; 0 until it is known
	drafts int // blocks behind them that draft tokens
	layers []layer
	model  windows.Model
	notes  []string
}

// note records an assumption, for people: no code depends on notes.
func (r *reading) note(s string) { r.notes = append(r.notes, s) }

// dtypes are the element types by the names that files use. A file with quantised
// weights names the type that is computed with, which is that of the cache unless the file
// asks for another one: see cacheType.
var dtypes = map[string]windows.DType{
	"float32": windows.Float32, "float": windows.Float32, "float16": windows.Float16,
	"half": windows.Float16, "bfloat16": windows.BFloat16,
}

// elements is the element type of keys and values, which a quantised file does
// not change. The text part may leave it to the whole model.
func (r *reading) elements(top *config) windows.DType {
	for _, c := range []*config{top, r.config} {
		// dtype is the name that newer files have; torch_dtype is the older one.
		key := "dtype"
		v, ok := c.value(key)
		if !ok {
			key = "torch_dtype"
			if v, ok = c.value(key); !ok {
				continue
			}
		}
		name, ok := v.(string)
		if !ok {
			c.say("%s is not a string", key)
			return windows.BFloat16
		}
		if d, ok := dtypes[strings.TrimPrefix(name, "torch.")]; ok {
			return d
		}
		c.say("%s %s is not one of bfloat16, float16, float32", key, name)
		return windows.BFloat16
	}
	if r.kind == "gpt_oss" { // its files are quantised and name no type
		return windows.BFloat16
	}
	r.note("the file names no dtype: float32 is assumed, as transformers does")
	return windows.Float32
}

// finish makes the model of the layers. The windows go to the preset instead of
// the model: windows.Config has them, so that a host can replace them.
func (r *reading) finish() Model {
	// The readers have set what is not of single layers: the longest sequence, the encoder.
	m := r.model
	m.Layers = len(r.layers)
	m.DType = cmp.Or(r.cache, r.dtype)
	for i, l := range r.layers {
		if l.heads == 0 && l.state == 0 && l.shares == 0 {
			m.NoCache = append(m.NoCache, i)
		}
	}
	// Heads of a layer that shares another's keys and values are 0, see shareLast.
	m.KVHeads = compact(r.layers, func(l layer) int { return l.heads })
	r.shapes(&m)
	states := make([]int64, len(r.layers))
	for i, l := range r.layers {
		states[i] = l.state
	}
	m.States = windows.StatesOf(states)
	if slices.ContainsFunc(r.layers, func(l layer) bool { return l.chunk > 0 }) {
		m.AttentionChunk = compact(r.layers, func(l layer) int { return l.chunk })
	}
	if slices.ContainsFunc(r.layers, func(l layer) bool { return l.shares > 0 }) {
		for i, l := range r.layers {
			if l.shares == 0 {
				l.shares = i + 1
			}
			m.SharedKV = append(m.SharedKV, l.shares-1)
		}
	}
	// A window that no sequence can outgrow is full attention, so a file in which all windows
	// are such gives none.
	var limits []int
	if slices.ContainsFunc(r.layers, func(l layer) bool {
		return l.window > 0 && l.window < m.MaxSeqLen
	}) {
		limits = compact(r.layers, func(l layer) int {
			if l.window == 0 {
				return m.MaxSeqLen
			}
			return l.window
		})
	}
	return Model{Preset: windows.Preset{Model: m, MaxAttentionWindow: limits}, Notes: r.notes}
}

// compact lists a number of each layer, or returns one number if all are equal.
// It lists zeros, since 0 for all layers has a meaning in lists only.
// In the lists of windows.Model and windows.Config one number stands for all layers.
func compact(layers []layer, of func(layer) int) []int {
	var out []int
	same := true
	for i, l := range layers {
		out = append(out, of(l))
		same = same && out[i] == out[0]
	}
	if same && len(out) > 0 && out[0] != 0 {
		return out[:1]
	}
	return out
}

// shapes sets the common shape, or one for each layer if they differ. Layers without
// keys and values take no part in the comparison.
func (r *reading) shapes(m *windows.Model) {
	var common windows.Shape
	same := true
	for _, l := range r.layers {
		if l.heads == 0 {
			continue
		}
		if common == (windows.Shape{}) {
			common = l.shape
		}
		same = same && l.shape == common
	}
	m.HeadDim, m.ValueDim, m.KVFactor, m.SideBytes = common.HeadDim, common.ValueDim, common.KVFactor,
		common.SideBytes
	if same {
		return
	}
	m.Shapes = make([]windows.Shape, len(r.layers))
	for i, l := range r.layers {
		m.Shapes[i] = l.shape
		m.Shapes[i].DType = m.DType
		if l.heads == 0 {
			// A shape of zeros would be refused; a layer without heads takes no bytes of it.
			m.Shapes[i] = common
			m.Shapes[i].DType = m.DType
		}
	}
	// A model has one common shape or a shape for each layer, not both.
	m.HeadDim, m.ValueDim, m.KVFactor, m.SideBytes = 0, 0, 0, 0
}

// divided is the share of one device of so many heads, and whether they can be
// divided. Fewer heads than devices are repeated: with 8 KV heads on 16 devices,
// each two devices hold the same head, because the query heads that use it are on
// both.
func (r *reading) divided(heads int) (int, bool) {
	switch {
	case heads%r.tp == 0:
		return heads / r.tp, true
	case r.tp%heads == 0:
		return 1, true
	default:
		return heads, false
	}
}
