//go:build poison && unix

package lent

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

type item struct {
	Pages []int32
	N     int
}

type record struct {
	Name  string
	Items []item
	Free  []int32
	Bytes [][]byte
	hint  *int
}

func sample() *record {
	one := 1
	return &record{Name: "a", Items: append(make([]item, 0, 4), item{Pages: append(make([]int32, 0, 8), 1, 2)}), Free: []int32{7}, Bytes: [][]byte{{1, 2}}, hint: &one}
}

// What the receiver answers in the slices that it was given arrives in the owner's
// arrays, within their capacity; slices of its own arrive as they are.
func TestAnswersArrive(t *testing.T) {
	var l Ledger
	r := sample()
	pages, hint, own := r.Items[0].Pages, r.hint, []int32{9, 9}
	out := l.Lend("pool", r).(*record)
	require.NotSame(t, r, out)
	out.Items[0].Pages = append(out.Items[0].Pages, 3)
	out.Items = append(out.Items, item{N: 5})
	out.Free = own
	assert.Same(t, r, l.Return(out))
	assert.Equal(t, []item{{Pages: []int32{1, 2, 3}}, {N: 5}}, r.Items)
	assert.Equal(t, []int32{1, 2, 3}, pages[:3], "the owner's own array")
	assert.Same(t, &own[0], &r.Free[0])
	assert.Same(t, hint, r.hint)
	assert.Equal(t, "a", r.Name)
}

// A copy is garbage when its receiver has got the next one.
func TestCopiesBecomeGarbage(t *testing.T) {
	var l Ledger
	r := sample()
	out := l.Lend("pool", r).(*record)
	kept := out.Items[0].Pages
	l.Return(out)
	assert.Equal(t, []int32{1, 2}, kept)
	l.Return(l.Lend("pool", r))
	assert.NotEqual(t, []int32{1, 2}, kept)
	assert.Equal(t, []int32{1, 2}, r.Items[0].Pages)
}

// A host's request is served as a copy, which becomes garbage with the answer.
func TestRequests(t *testing.T) {
	request := &messages.Admit{Requests: []messages.AdmitRequest{{Tokens: []messages.Token{1, 2}, Retention: &messages.Retention{}}}}
	served := Copy(request).(*messages.Admit)
	require.NotSame(t, request, served)
	tokens, table := served.Requests[0].Tokens, []messages.PageID{4, 5}
	served.Results = []messages.Admitted{{Tables: [][][]messages.PageID{{table}}}}
	Restore(request, served)
	assert.Equal(t, []messages.Token{1, 2}, request.Requests[0].Tokens)
	assert.Equal(t, []messages.PageID{4, 5}, request.Results[0].Tables[0][0])
	assert.NotEqual(t, []messages.Token{1, 2}, tokens)
	assert.NotEqual(t, []messages.PageID{4, 5}, table)

	r := sample()
	assert.Same(t, r, Copy(r), "no request of a host")
	Restore(messages.Admit{}, messages.Admit{})
}

// Each mistake of an owner ends the program.
func TestMistakes(t *testing.T) {
	mistakes := map[string]struct {
		make func(r *record, back func())
		says string
	}{
		"read":   {func(r *record, _ func()) { _ = r.Items[0].Pages[0] }, "unexpected fault address"},
		"write":  {func(r *record, back func()) { r.Name = "b"; back() }, "lent.record was written to by its owner while it was lent to pool"},
		"behind": {func(r *record, back func()) { kept[0] = 5; back() }, "lent.record.Items[0].Pages[0] was changed by its owner while it was lent to pool"},
		"bytes":  {func(r *record, back func()) { keptBytes[1] = 5; back() }, "lent.record.Bytes[0][1] was changed by its owner while it was lent to pool"},
	}
	if name := os.Getenv("LENT_MISTAKE"); name != "" {
		var l Ledger
		r := sample()
		kept, keptBytes = r.Items[0].Pages, r.Bytes[0]
		out := l.Lend("pool", r)
		mistakes[name].make(r, func() { l.Return(out) })
		return
	}
	for name, m := range mistakes {
		c := exec.Command(os.Args[0], "-test.run=^TestMistakes$")
		c.Env = append(os.Environ(), "LENT_MISTAKE="+name)
		out, err := c.CombinedOutput()
		assert.Error(t, err, name)
		assert.True(t, strings.Contains(string(out), m.says), "%s: %s", name, out)
	}
}

var (
	kept      []int32
	keptBytes []byte
)
