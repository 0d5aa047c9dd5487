package script

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows/kvconfig"
)

var update = flag.Bool("update", false, "write what is generated into docs/script.md")

const page = "../../../../docs/script.md"

// answers are what each op answers when it is done; ops that are not here answer op and ok.
var answers = map[string]any{
	"open": poolsAnswer{}, "close": closeAnswer{}, "admit": admitAnswer{},
	"admit_batch": resultsAnswer{},
	"commit":      commitAnswer{}, "append": resultsAnswer{}, "fork": nil, "tables": tablesAnswer{},
	"lookup": lookupAnswer{}, "pin": pinAnswer{}, "invalidate": invalidateAnswer{},
	"prefetch":  prefetchAnswer{},
	"rebalance": rebalanceAnswer{}, "stats": statsAnswer{}, "events": eventsAnswer{},
	"verify": verifyAnswer{},
	"flush":  flushAnswer{}, "fetch": fetchAnswer{},
}

// parts are the objects inside of requests, with what reads them.
var parts = []struct {
	name string
	read func(*object)
}{
	{"model", func(o *object) { o.model() }},
	{"model.state", func(o *object) { o.layers(); o.int("bytes") }},
	{"pages, or pages.POOL", func(o *object) { o.counts() }},
	{"tokens, if not a list", func(o *object) { o.int("from"); o.int("count") }},
	{"multimodal[]", func(o *object) { o.text("hash"); o.int("start"); o.int("length") }},
	{"retention", func(o *object) { o.retention() }},
	{"steps[]", func(o *object) { o.step() }},
	{"requests[]", func(o *object) { o.admit() }},
}

// names are those that the package's readers ask for, by its source.
func names(t *testing.T) []string {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := map[string]bool{}
	asked := regexp.MustCompile(`\.(?:text|optText|int|optInt|intOr|flagOr|` +
		`optNumber|list|objects|child|take|has|ints|numbers)\("(\w+)"`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range asked.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// taken are the names that a reader asks for.
func taken(names []string, read func(*object)) (list []string) {
	for _, name := range names {
		o := newObject("x", "", raw(fmt.Sprintf(`{"%s":null}`, name)), &shape{})
		read(o)
		if o.taken[0] {
			list = append(list, name)
		}
	}
	return list
}

// written draws the JSON of a type: its fields, {} for an object by pool, [] for a list.
func written(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return written(t.Elem())
	case t.Kind() == reflect.Slice && strings.HasPrefix(t.Name(), "byPool"):
		field, _ := t.Elem().FieldByName("value")
		return "{POOL" + strings.TrimSuffix(" "+written(field.Type), " ") + "}"
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		return "[" + written(t.Elem()) + "]"
	case t.Kind() != reflect.Struct:
		return ""
	}
	return "{" + strings.Join(members(t), ", ") + "}"
}

func members(t reflect.Type) (list []string) {
	for f := range slices.Values(reflect.VisibleFields(t)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if len(f.Index) > 1 || name == "" && !f.Anonymous {
			continue
		}
		if f.Anonymous {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			list = append(list, members(inner)...)
			continue
		}
		list = append(list, strings.TrimSuffix(name+" "+written(f.Type), " "))
	}
	return list
}

// reference is the generated part of the page.
func reference(t *testing.T) string {
	names := names(t)
	var b strings.Builder
	b.WriteString("| op | fields of the request | fields of the answer |\n| --- | --- | --- |\n")
	for _, op := range slices.Sorted(maps.Keys(decoders)) {
		asked := taken(names, func(o *object) { decoders[op](o) })
		answered := []string{}
		if a := answers[op]; a != nil {
			answered = members(reflect.TypeOf(a))
			answered = answered[2:] // op, ok
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", op, quoted(asked), quoted(answered))
	}
	b.WriteString("\n| object | fields |\n| --- | --- |\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "| `%s` | %s |\n", p.name, quoted(taken(names, p.read)))
	}
	fmt.Fprintf(&b, "| `cache` | %s |\n", quoted(kvconfig.Names()))
	b.WriteString("\n| event | fields |\n| --- | --- |\n")
	for _, e := range []struct {
		name string
		of   any
	}{{"created", createdEvent{}}, {"stored", storedEvent{}}, {"removed", removedEvent{}},
		{"updated", updatedEvent{}}, {"cleared", eventHead{}}} {
		fmt.Fprintf(&b, "| `%s` | %s |\n", e.name, quoted(members(reflect.TypeOf(e.of))))
	}
	return b.String()
}

func quoted(list []string) string {
	if len(list) == 0 {
		return "–"
	}
	return "`" + strings.Join(list, "`, `") + "`"
}

// The page lists every op and field, generated from the code, and says what each field of a
// request is.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	const begin, end = "<!-- generated by go test ./cmd/demo/internal/script -run Reference -update -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := before + begin + "\n" + reference(t) + "\n" + end + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
	} else {
		assert.Equal(t, want, string(text))
	}
	for _, name := range append(names(t), kvconfig.Names()...) {
		assert.Contains(t, after, "`"+name+"`", "the page says what the field is")
	}
}
