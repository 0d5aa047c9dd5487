// Package calls names the requests of an engine for those who observe calls: metrics, traces and
// the demo.
package calls

import (
	"strings"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// prefix comes before the name of a call in the name of its span.
const prefix = "kvactor."

// observed are requests of the engine's own, which messages does not have: those of stores and
// of the hand-over of sequences.
type observed interface {
	Observed() (call string, refusal error)
}

// Name names a call, and returns its refusal.
func Name(request any) (name string, refusal error) {
	span, _, refusal := Describe(request)
	return strings.TrimPrefix(span, prefix), refusal
}

// Describe names the span of a call, counts its requests or steps, and returns its refusal. The
// number is −1 of calls that only read or set the engine's state.
func Describe(request any) (span string, items int, refusal error) {
	switch m := request.(type) {
	case *messages.Admit:
		return "kvactor.admit", len(m.Requests), m.Err
	case *messages.Append:
		return "kvactor.append", len(m.Steps), m.Err
	case *messages.Commit:
		return "kvactor.commit", len(m.Steps), m.Err
	case *messages.Release:
		return "kvactor.release", len(m.Steps), m.Err
	case *messages.Rewind:
		return "kvactor.rewind", len(m.Steps), m.Err
	case *messages.Fork:
		return "kvactor.fork", len(m.Steps), m.Err
	case *messages.Lookup:
		return "kvactor.lookup", 1, m.Err
	case *messages.PinPrefix:
		return "kvactor.pin", 1, m.Err
	case *messages.Prefetch:
		return "kvactor.prefetch", 1, m.Err
	case *messages.Invalidate:
		return "kvactor.invalidate", 1, m.Err
	case *messages.Rebalance:
		return "kvactor.rebalance", 1, m.Err
	case observed:
		name, refusal := m.Observed()
		return prefix + name, 1, refusal
	case *messages.ReadTables:
		return "kvactor.tables", -1, m.Err
	case *messages.UnpinPrefix:
		return "kvactor.unpin", -1, m.Err
	case *messages.Reset:
		return "kvactor.reset", -1, m.Err
	case *inspect.ReadStats:
		return "kvactor.stats", -1, m.Err
	case *inspect.ReadOverview:
		return "kvactor.overview", -1, m.Err
	case *kvevents.ReadEvents:
		return "kvactor.events", -1, m.Err
	case *kvevents.ReadSnapshot:
		return "kvactor.events", -1, m.Err
	case *kvevents.OpenReader:
		return "kvactor.events", -1, m.Err
	case *kvevents.CloseReader:
		return "kvactor.events", -1, m.Err
	case *messages.WriteScales:
		return "kvactor.write_scales", -1, m.Err
	case *messages.ReadScales:
		return "kvactor.read_scales", -1, m.Err
	case *inspect.Check:
		return "kvactor.check", -1, m.Err
	default:
		return "kvactor.other", -1, nil
	}
}
