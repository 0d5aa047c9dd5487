package live_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// modulo is a set of things in which two right answers may differ.
type modulo uint8

// What may differ.
const (
	// anyPages: page numbers, as long as two numbers of one pool in one line are
	// the same in both or in neither.
	anyPages modulo = 1 << iota
	// anyHashes: names of blocks, as long as one renaming holds for all lines of one
	// engine: one with other blocks may name them otherwise.
	anyHashes
	// anyWords: the texts of errors.
	anyWords
	// anyChecks: how many pages verify has looked at.
	anyChecks
	// anyOrder: of events of different pools, of removals, how these are merged and
	// how a snapshot is cut into runs.
	anyOrder

	// protocol is all that the protocol leaves to an implementation.
	protocol = anyPages | anyHashes | anyWords | anyChecks | anyOrder
)

// equalAnswers compares two lists of answers, one a line, and gives the first
// difference. Fields that only got has are passed over: answers may grow.
func equalAnswers(got, want []byte, modulo modulo) error {
	g, w := answersOf(got), answersOf(want)
	if len(g) != len(w) {
		return fmt.Errorf("%d answers, want %d", len(g), len(w))
	}
	c := &equality{modulo: modulo, hashes: newRenaming()}
	for i := range g {
		if err := c.line(g[i], w[i]); err != nil {
			return fmt.Errorf("answer %d: %w\n got %s\nwant %s", i+1, err, g[i], w[i])
		}
	}
	return nil
}

func answersOf(b []byte) [][]byte {
	return slices.DeleteFunc(bytes.Split(b, []byte("\n")), func(l []byte) bool {
		return len(bytes.TrimSpace(l)) == 0
	})
}

// equality holds what names of got stand for in want.
type equality struct {
	modulo modulo
	hashes *renaming
	pages  map[string]*renaming // by pool, in this line
}

// renaming is a bijection that grows as names are met.
type renaming struct{ there, back map[string]string }

func newRenaming() *renaming { return &renaming{make(map[string]string), make(map[string]string)} }

func (r *renaming) same(got, want string) bool {
	a, okA := r.there[got]
	b, okB := r.back[want]
	if !okA && !okB {
		r.there[got], r.back[want] = want, got
		return true
	}
	return okA && okB && a == want && b == got
}

func (c *equality) line(got, want []byte) error {
	g, err := decoded(got)
	if err != nil {
		return fmt.Errorf("got: %w", err)
	}
	w, err := decoded(want)
	if err != nil {
		return fmt.Errorf("want: %w", err)
	}
	c.pages = make(map[string]*renaming)
	if opens(w) {
		c.hashes = newRenaming()
	}
	if c.modulo&anyOrder != 0 {
		g, w = inPoolOrder(g), inPoolOrder(w)
	}
	return c.value(nil, g, w)
}

// opens reports whether an answer is that of an engine that has started.
func opens(answer any) bool {
	fields, _ := answer.(map[string]any)
	return fields["op"] == "open" && fields["ok"] == true
}

// decoded keeps numbers as they are written.
func decoded(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	return v, d.Decode(&v)
}

// value compares two values that stand at a path of field names.
func (c *equality) value(path []string, got, want any) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: no object", at(path))
		}
		return c.object(path, g, w)
	case []any:
		g, ok := got.([]any)
		if !ok {
			return fmt.Errorf("%s: no list", at(path))
		}
		if len(g) != len(w) && !c.free(path) {
			return fmt.Errorf("%s: %d items, want %d", at(path), len(g), len(w))
		}
		if c.modulo&anyOrder != 0 && len(path) > 0 && path[len(path)-1] == "hashes" {
			c.pair(g, w)
		}
		for i := range min(len(g), len(w)) {
			if err := c.value(path, g[i], w[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if !c.leaf(path, got, want) {
		return fmt.Errorf("%s: %v, want %v", at(path), got, want)
	}
	return nil
}

// pair puts removed hashes into the order of those wanted, those first whose
// names are known: one request may remove many, in any order.
func (c *equality) pair(got, want []any) {
	slices.SortStableFunc(want, func(a, b any) int {
		return len(c.hashes.back[fmt.Sprint(b)]) - len(c.hashes.back[fmt.Sprint(a)])
	})
	place := make(map[string]int, len(want))
	for i, w := range want {
		place[fmt.Sprint(w)] = i
	}
	rank := func(hash any) int {
		name := fmt.Sprint(hash)
		if c.modulo&anyHashes != 0 {
			name = c.hashes.there[name]
		}
		if i, ok := place[name]; ok {
			return i
		}
		return len(want)
	}
	slices.SortStableFunc(got, func(a, b any) int { return rank(a) - rank(b) })
}

func (c *equality) object(path []string, got, want map[string]any) error {
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		g, ok := got[name]
		if !ok {
			return fmt.Errorf("%s: lacks %s", at(path), name)
		}
		if err := c.value(append(slices.Clone(path), name), g, want[name]); err != nil {
			return err
		}
	}
	// Pools and results are the keys' meaning: one more is a difference.
	if len(path) > 0 && (isPages(path[len(path)-1]) || path[len(path)-1] == "pools") &&
		len(got) != len(want) {
		return fmt.Errorf("%s: %d members, want %d", at(path), len(got), len(want))
	}
	return nil
}

// free reports whether a list may have another length: which pages move in a
// rebalance depends on how they are numbered.
func (c *equality) free(path []string) bool {
	return c.modulo&anyPages != 0 && slices.Contains(path, "moved")
}

func isPages(name string) bool { return name == "tables" || name == "new_pages" }

// leaf compares what is neither object nor list.
func (c *equality) leaf(path []string, got, want any) bool {
	name := path[len(path)-1]
	g, w := fmt.Sprint(got), fmt.Sprint(want)
	switch {
	case c.modulo&anyWords != 0 && (name == "message" || name == "problems"):
		return true
	case c.modulo&anyChecks != 0 && name == "checked_pages", c.free(path):
		return true
	case c.modulo&anyOrder != 0 && name == "id":
		return true
	case c.modulo&anyHashes != 0 && (name == "hash" || name == "hashes" || name == "parent") &&
		want != nil && got != nil:
		return c.hashes.same(g, w)
	case c.modulo&anyPages != 0 && slices.ContainsFunc(path, isPages):
		if g == "-1" || w == "-1" {
			return g == w
		}
		if c.pages[name] == nil {
			c.pages[name] = newRenaming()
		}
		return c.pages[name].same(g, w)
	}
	return got == want
}

func at(path []string) string {
	if len(path) == 0 {
		return "line"
	}
	return strings.Join(path, ".")
}

// inPoolOrder sorts the events of an answer by pool, keeping the order within
// each, merges removals that follow one another and cuts a snapshot's runs into
// blocks.
func inPoolOrder(answer any) any {
	object, ok := answer.(map[string]any)
	if !ok {
		return answer
	}
	events, ok := object["events"].([]any)
	if !ok {
		return answer
	}
	slices.SortStableFunc(events, func(a, b any) int {
		return strings.Compare(member(a, "pool"), member(b, "pool"))
	})
	prioritiesFirst(events)
	snapshot := object["snapshot"] == true
	out := []any{}
	for _, e := range events {
		switch n := len(out); {
		case n > 0 && member(e, "type") == "removed" && member(out[n-1], "type") == "removed" &&
			member(e, "pool") == member(out[n-1], "pool"):
			last, _ := out[n-1].(map[string]any)
			first, _ := last["hashes"].([]any)
			more, _ := e.(map[string]any)["hashes"].([]any)
			last["hashes"] = append(first, more...)
		case snapshot || member(e, "type") == "stored" && e.(map[string]any)["id"] == nil:
			out = append(out, blocksOf(e.(map[string]any))...)
		default:
			out = append(out, e)
		}
	}
	object["events"] = out
	return object
}

// prioritiesFirst moves changes of priority before changes of tier of other
// blocks that stand directly before them in the same pool: a request may tell of
// its blocks one by one, or first of all priorities.
func prioritiesFirst(events []any) {
	tier := func(e any) bool {
		_, is := e.(map[string]any)["tier"]
		return is && member(e, "type") == "updated"
	}
	priority := func(e any) bool {
		_, is := e.(map[string]any)["priority"]
		return is && member(e, "type") == "updated"
	}
	for i := range events {
		for j := i; j > 0 && priority(events[j]) && tier(events[j-1]) &&
			member(events[j], "pool") == member(events[j-1], "pool") &&
			member(events[j], "hash") != member(events[j-1], "hash"); j-- {
			events[j], events[j-1] = events[j-1], events[j]
		}
	}
}

// member is a text in an object; empty if there is none.
func member(object any, name string) string {
	o, _ := object.(map[string]any)
	s, _ := o[name].(string)
	return s
}

// blocksOf cuts a stored event into one for each block.
func blocksOf(event map[string]any) []any {
	blocks, _ := event["blocks"].([]any)
	out := make([]any, len(blocks))
	parent := event["parent"]
	for i, block := range blocks {
		one := maps.Clone(event)
		one["parent"], one["blocks"] = parent, []any{block}
		out[i] = one
		parent = member(block, "hash")
	}
	return out
}
