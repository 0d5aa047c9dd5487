package coordinator_test

import (
	"fmt"
	"strconv"
	"strings"
	gotesting "testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/scripttest"
	"github.com/kvactor/kvactor/messages"
)

// requests makes the requests of an admit command.
func (s *script) requests(
	d *datadriven.TestData,
) (names []string, requests []messages.AdmitRequest) {
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "chunk", "beams", "session", "salt", "priority", "ms", "input", "items":
			continue
		}
		r := messages.AdmitRequest{Tokens: tokensOf(arg.Vals[0]), ChunkTokens: s.number(d, "chunk", 0),
			BeamWidth: s.number(d, "beams", 0)}
		if d.HasArg("session") {
			d.ScanArgs(s.t, "session", &r.Session)
		}
		if d.HasArg("salt") {
			d.ScanArgs(s.t, "salt", &r.Namespace.Salt)
		}
		if d.HasArg("items") {
			r.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 1, Length: 3}}
		}
		if d.HasArg("input") {
			var input string
			d.ScanArgs(s.t, "input", &input)
			r.Encoder = tokensOf(input)
		}
		if d.HasArg("priority") {
			r.Retention = &messages.Retention{Ranges: []messages.RetentionRange{{
				End: messages.EndOfPrompt, Priority: messages.Priority(s.number(d, "priority", 0)),
				Duration: time.Duration(s.number(d, "ms", 0)) * time.Millisecond,
			}}}
		}
		names, requests = append(names, arg.Key), append(requests, r)
	}
	return names, requests
}

func (s *script) admit(d *datadriven.TestData) {
	names, requests := s.requests(d)
	m := &messages.Admit{Requests: requests}
	s.waiting[m] = names
	if s.Do(m); s.waiting[m] != nil && !s.aborted {
		fmt.Fprintf(&s.out, "%s: waits\n", strings.Join(names, ", "))
	}
}

// answered prints the answer of an admission, which may come after others.
func (s *script) answered(request any) {
	m, ok := request.(*messages.Admit)
	if !ok || s.waiting[m] == nil {
		return
	}
	for i, name := range s.waiting[m] {
		r := &m.Results[i]
		if r.Err != nil {
			fmt.Fprintf(&s.out, "%s: %v\n", name, r.Err)
			continue
		}
		s.names[name] = r.Sequence
		s.started(&m.Requests[i], r)
		fmt.Fprintf(&s.out, "%s: %d tokens reused, %s, partial %s, onboarded %d, tables", name,
			r.ReusedTokens, r.MissReason, r.Reuse[0].PartialReuse, r.Reuse[0].Onboarded)
		for p := range r.Tables {
			for _, table := range r.Tables[p] {
				fmt.Fprintf(&s.out, " %s", pages(table))
			}
		}
		if len(r.Checkpoints) > 0 {
			fmt.Fprintf(&s.out, ", checkpoints %v", r.Checkpoints)
		}
		if r.Cross != nil {
			fmt.Fprintf(&s.out, ", %d tokens of the input reused", r.Cross.ReusedTokens)
		}
		s.out.WriteByte('\n')
	}
	delete(s.waiting, m)
}

// number is the value of an argument, or the default.
func (s *script) number(d *datadriven.TestData, key string, otherwise int) int {
	return scripttest.Number(s.t, d, key, otherwise)
}

// numbers are the values of an argument.
func (s *script) numbers(d *datadriven.TestData, key string) []int {
	return scripttest.Numbers(s.t, d, key)
}

func number(t *gotesting.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// tokensOf are the tokens of ranges: 0..4+9..10 are 0 1 2 3 9.
func tokensOf(ranges string) (tokens []messages.Token) {
	for _, r := range strings.Split(ranges, "+") {
		from, to, _ := strings.Cut(r, "..")
		a, _ := strconv.Atoi(from)
		b, _ := strconv.Atoi(to)
		tokens = append(tokens, run(a, b-a)...)
	}
	return tokens
}
