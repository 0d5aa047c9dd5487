package coordinator_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/protocol"
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
			fmt.Fprintf(&s.out, "%d matched, %d on the device, %d in host memory, %v\n",
				m.Found.MatchedTokens, m.Found.PrimaryTokens, m.Found.SecondaryTokens, m.Err)
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

// fetch serves one of the requests that a host's Fetch is made of.
//
//	fetch 0..12          asks what no tier has
//	fetch 0..12 wanted   the store has the first three blocks: asks what is to be read
//	fetch 0..12 count    the same, but asks for the length only
//	fetch 0..12 bytes    brings them
//	fetch 0..12 bytes stored=2   the store has two blocks
//	fetch 0..12 bytes lacks=1    the store has all blocks but the first
//	fetch 0..12 items            an item covers some of the tokens
func (s *script) fetch(d *datadriven.TestData) {
	tokens := tokensOf(d.CmdArgs[0].Key)
	m := &protocol.Fetch{Prefix: messages.Prefix{Tokens: tokens}, Count: d.HasArg("count")}
	if d.HasArg("items") {
		m.Prefix.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 1, Length: 3}}
	}
	if d.HasArg("wanted") || d.HasArg("count") || d.HasArg("bytes") {
		s.offerStored(m, s.number(d, "stored", len(tokens)/tpb), d.HasArg("bytes"))
		for p := range m.Stored {
			clear(m.Stored[p][:s.number(d, "lacks", 0)])
			clear(m.Bytes[p][:s.number(d, "lacks", 0)])
		}
	}
	if !s.Do(m) {
		return
	}
	switch {
	case m.Err != nil:
		fmt.Fprintf(&s.out, "%v\n", m.Err)
	case m.Stored == nil:
		fmt.Fprintf(&s.out, "missing%s\n", s.grid(m.Missing))
	case m.Wanted != nil:
		fmt.Fprintf(&s.out, "length %d, wanted%s\n", m.Length, s.grid(m.Wanted))
	default:
		fmt.Fprintf(&s.out, "length %d, %d blocks fetched\n", m.Length, m.Fetched)
	}
}

// offerStored fills in what a store has: the first blocks of the prefix in every pool, and
// with bytes their pages.
func (w *world) offerStored(m *protocol.Fetch, blocks int, bytes bool) {
	chains, all := host.Chains(m.Prefix), len(m.Prefix.Tokens)/tpb
	for p := range w.shapes {
		stored, pages := make([]bool, all), make([][]byte, all)
		for b := range blocks {
			stored[b] = true
			if !bytes {
				continue
			}
			pages[b] = make([]byte, w.shapes[p].PageBytes())
			if w.layouts[p].HoldsStates() {
				w.layouts[p].WriteState(pages[b], host.StateAfter(chains, (b+1)*tpb))
			} else {
				w.layouts[p].Write(pages[b], 0, chains[b*tpb:(b+1)*tpb]...)
			}
		}
		m.Stored, m.Bytes = append(m.Stored, stored), append(m.Bytes, pages)
	}
}

// grid lists the blocks of each pool that are set.
func (s *script) grid(pools [][]bool) string {
	text := ""
	for _, blocks := range pools {
		var set []int
		for b, is := range blocks {
			if is {
				set = append(set, b)
			}
		}
		text += fmt.Sprintf(" %v", set)
	}
	return text
}

func (s *script) rare(d *datadriven.TestData) {
	switch d.Cmd {
	case "invalidate":
		m := &messages.Invalidate{Selector: messages.Selector{Prefix: &messages.Prefix{Tokens: tokensOf(
			d.CmdArgs[0].Key)}}}
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
		fmt.Fprintf(&s.out, "%s: %d pages, held pages moved %v\n", p.Name, p.PrimaryPages,
			m.Rebalanced.Moved[i])
	}
	fmt.Fprintf(&s.out, "%v\n", m.Err)
	// The host reads the new tables, and releases what it is told is lost.
	before, after := s.Before, s.After
	s.Before, s.After = nil, nil
	s.releaseAllLost()
	s.Before, s.After = before, after
}
