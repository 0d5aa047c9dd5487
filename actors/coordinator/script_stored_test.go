package coordinator_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// stored serves requests about what is stored.
func (s *script) stored(d *datadriven.TestData) {
	arg := d.CmdArgs[0]
	switch d.Cmd {
	case "lookup":
		m := &messages.Lookup{Prefix: messages.Prefix{Tokens: tokensOf(arg.Key)}}
		if s.Do(m) {
			fmt.Fprintf(&s.out, "%d matched, %d on the device, %d in host memory, %v\n", m.Found.MatchedTokens, m.Found.PrimaryTokens, m.Found.SecondaryTokens, m.Err)
		}
	case "prefetch":
		m := &messages.Prefetch{Prefix: messages.Prefix{Tokens: tokensOf(arg.Key)}}
		if s.Do(m) {
			fmt.Fprintf(&s.out, "%d pages onboarded, %v\n", m.OnboardedPages, m.Err)
		}
	case "pin":
		m := &messages.PinPrefix{Prefix: messages.Prefix{Tokens: tokensOf(arg.Vals[0])}}
		if s.Do(m) {
			s.pins[arg.Key] = m.Pinned.Pin
			fmt.Fprintf(&s.out, "%d tokens pinned, %v\n", m.Pinned.Tokens, m.Err)
		}
	case "unpin":
		m := &messages.UnpinPrefix{Pin: s.pins[arg.Key]}
		if s.Do(m) {
			fmt.Fprintf(&s.out, "%v\n", m.Err)
		}
	}
}

func (s *script) rare(d *datadriven.TestData) {
	switch d.Cmd {
	case "invalidate":
		m := &messages.Invalidate{Selector: messages.Selector{Prefix: &messages.Prefix{Tokens: tokensOf(d.CmdArgs[0].Key)}}}
		if session, ok := strings.CutPrefix(d.CmdArgs[0].Key, "session:"); ok {
			m.Selector = messages.Selector{Session: session}
		}
		if salt, ok := strings.CutPrefix(d.CmdArgs[0].Key, "salt:"); ok {
			m.Selector = messages.Selector{Salt: salt}
		}
		if s.Do(m) {
			fmt.Fprintf(&s.out, "%d blocks, %v\n", m.Blocks, m.Err)
		}
	case "reset":
		m := &messages.Reset{}
		if s.Do(m) {
			fmt.Fprintf(&s.out, "%v\n", m.Err)
		}
	case "rebalance":
		s.rebalance(d)
	case "wait":
		s.now += time.Duration(s.number(d, "ms", 0)) * time.Millisecond
		s.Do(&inspect.ReadStats{})
	case "stats":
		for _, p := range s.stats().Pools {
			fmt.Fprintf(&s.out, "%s: %+v\n", p.Name, p.PoolCounters)
		}
	default:
		d.Fatalf(s.t, "no command")
	}
}

func (s *script) rebalance(d *datadriven.TestData) {
	m := &messages.Rebalance{}
	switch {
	case d.HasArg("pages"):
		m.Pages = s.numbers(d, "pages")
	case !d.HasArg("demand"):
		m.Fractions = map[string]float64{}
		for _, arg := range d.CmdArgs {
			f, err := strconv.ParseFloat(arg.Vals[0], 64)
			require.NoError(s.t, err)
			m.Fractions[arg.Key] = f
		}
	}
	if !s.Do(m) {
		return
	}
	for i, p := range m.Rebalanced.Pools {
		fmt.Fprintf(&s.out, "%s: %d pages, held pages moved %v\n", p.Name, p.PrimaryPages, m.Rebalanced.Moved[i])
	}
	fmt.Fprintf(&s.out, "%v\n", m.Err)
	// The host reads the new tables, and releases what it is told is lost.
	before, after := s.Before, s.After
	s.Before, s.After = nil, nil
	s.releaseAllLost()
	s.Before, s.After = before, after
}
