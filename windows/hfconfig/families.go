package hfconfig

import (
	_ "embed" // of the table
	"go/ast"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed families.txt
var familiesText string

//go:embed harmless.txt
var harmlessText string

//go:embed architectures.txt
var architecturesText string

//go:embed passive.txt
var passiveText string

// table is the rules for the files of one kind.
type table struct {
	families map[string]*family
	plain    *family  // of types that are not known
	harmless []string // patterns of keys that have no bearing on the cache of any type
	word     string   // for a type
}

// configs are the rules of config.json, headers those of GGUF files.
var (
	configs = sync.OnceValue(
		func() *table { return tableOf(familiesText, harmlessText, "plain", "model_type") })
	headers = sync.OnceValue(
		func() *table { return tableOf(architecturesText, passiveText, "gguf", "architecture") })
)

func tableOf(families, harmless, plain, word string) *table {
	t := &table{families: familiesOf(families), harmless: strings.Fields(harmless), word: word}
	t.plain = t.families[plain]
	return t
}

// family is the rules for some model types.
type family struct {
	parents []*family
	rules   map[string]ast.Expr
	note    string // for the reader of a model; a refusal begins with "!"
}

// find is a rule of the family or of its parents, of which the last that has it
// counts; nil without one.
func (f *family) find(name string) ast.Expr {
	if e := f.rules[name]; e != nil {
		return e
	}
	for _, p := range slices.Backward(f.parents) {
		if e := p.find(name); e != nil {
			return e
		}
	}
	return nil
}

// keys are the keys that the rules of the family read, and those of its parents.
func (f *family) keys() []string {
	var keys []string
	for _, e := range f.rules {
		keys = keysOf(e, keys)
	}
	for _, p := range f.parents {
		keys = append(keys, p.keys()...)
	}
	return keys
}

// familiesOf reads the lines of a table: families by model type.
func familiesOf(text string) map[string]*family {
	all := make(map[string]*family)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		line, note, _ := strings.Cut(line, " || ")
		line, rules, _ := strings.Cut(line, " |")
		names, parents, _ := strings.Cut(line, ":")
		f := &family{rules: make(map[string]ast.Expr), note: note}
		for _, p := range strings.Fields(parents) {
			if all[p] == nil {
				panic("hfconfig: no family " + p + " before: " + line)
			}
			f.parents = append(f.parents, all[p])
		}
		for _, rule := range strings.Fields(rules) {
			name, text, _ := strings.Cut(rule, "=")
			f.rules[name] = compile(text)
		}
		for _, name := range strings.Fields(names) {
			all[name] = f
		}
	}
	return all
}

// passive reports whether a key of any type has no bearing on its cache.
func (t *table) passive(key string) bool {
	return slices.ContainsFunc(t.harmless, func(pattern string) bool {
		ok, _ := path.Match(pattern, key)
		return ok
	})
}

// unread lists the keys that are on and that no rule of the family reads. Nobody has
// said that they have no bearing on the cache.
func (r *reading) unread() []string {
	known := r.rules.keys()
	var unread []string
	for _, key := range r.config.keys() {
		if r.config.has(key) && !slices.Contains(known, key) && !r.table.passive(key) {
			unread = append(unread, key)
		}
	}
	// A window could be of all layers or of some.
	if r.rules != configs().plain || r.config.has("layer_types") {
		return unread
	}
	if r.config.has("sliding_window") && r.config.flag("use_sliding_window", true) {
		unread = append(unread, "sliding_window")
	}
	if r.config.has("attention_chunk_size") {
		unread = append(unread, "attention_chunk_size")
	}
	return unread
}
