package oracle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// script drives an Oracle from request lines of the script protocol, as far as
// the examples need it: pools have one KV head count and one dtype.
type script struct {
	o         *oracle.Oracle
	now       time.Duration
	pools     []messages.PoolInfo
	states    map[messages.PoolID]bool
	sequences map[string]*scripted
	pins      map[string]messages.PinID
	stores    map[string]*oracle.Store // by name and geometry
	store     *oracle.Store
}

// scripted is a sequence as the script's host sees it.
type scripted struct {
	id     messages.SequenceID
	tokens int
	manual bool
}

type object = map[string]any

type tokenList []messages.Token

// UnmarshalJSON reads a list or {"from","count"}.
func (l *tokenList) UnmarshalJSON(text []byte) error {
	var run struct{ From, Count int }
	if json.Unmarshal(text, &run) == nil {
		for i := range run.Count {
			*l = append(*l, messages.Token(run.From+i))
		}
		return nil
	}
	return json.Unmarshal(text, (*[]messages.Token)(l))
}

type line struct {
	Op, Seq, Salt, Session, Prefill, Pin string
	Lora                                 *string
	Tokens                               json.RawMessage
	Beam                                 int `json:"beam_width"`
	Chunk                                int `json:"chunk_tokens"`
	Retention                            *retentionField
	Requests                             []line
	Steps                                []struct {
		Seq    string
		Tokens tokenList
		Beams  []messages.BeamStep
	}
	Computed int
	Into     []string
	Store    json.RawMessage // of release a bool, of open an object
	Count    int
	Model    json.RawMessage
	Cache    json.RawMessage
	Pages    json.RawMessage
}

type retentionField struct {
	Ranges []struct {
		Start, Priority int
		End             *int
		DurationMs      int `json:"duration_ms"`
	}
}

func (l line) tokens() (list tokenList) {
	_ = json.Unmarshal(l.Tokens, &list)
	return list
}

func (l line) namespace() messages.Namespace {
	ns := messages.Namespace{Salt: l.Salt}
	if l.Lora != nil {
		ns.LoRA, ns.HasLoRA = *l.Lora, true
	}
	return ns
}

func (l line) prefix() messages.Prefix {
	return messages.Prefix{Namespace: l.namespace(), Tokens: l.tokens()}
}

func (l line) request() messages.AdmitRequest {
	r := messages.AdmitRequest{
		Namespace: l.namespace(), Tokens: l.tokens(), Session: l.Session, BeamWidth: l.Beam,
		ChunkTokens: l.Chunk,
	}
	if l.Retention != nil {
		r.Retention = &messages.Retention{}
		for _, x := range l.Retention.Ranges {
			y := messages.RetentionRange{
				Start: x.Start, End: messages.EndOfPrompt, Priority: messages.Priority(x.Priority),
				Duration: time.Duration(x.DurationMs) * time.Millisecond,
			}
			if x.End != nil {
				y.End = *x.End
			}
			r.Retention.Ranges = append(r.Retention.Ranges, y)
		}
	}
	return r
}

func failed(op string, err error) object {
	var r *messages.Refusal
	if !errors.As(err, &r) {
		panic(err)
	}
	e := object{"code": string(r.Code)}
	if r.Code == messages.ErrOutOfPages {
		e["pool"], e["need"], e["available"] = r.Pool, r.Need, r.Available
	}
	return object{"op": op, "ok": false, "error": e}
}

// do answers one line; the answer is shaped like the protocol's.
func (s *script) do(text string) object {
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		panic(fmt.Sprint(text, ": ", err))
	}
	if l.Op == "append" && l.Seq != "" {
		// the one wrong shape in the examples
		return failed(l.Op, refusals.New(messages.ErrBadRequest, "shape"))
	}
	a, err := s.answer(l)
	if err != nil {
		return failed(l.Op, err)
	}
	a["op"], a["ok"] = l.Op, true
	var plain object
	encoded, _ := json.Marshal(a)
	d := json.NewDecoder(bytes.NewReader(encoded))
	if err := d.Decode(&plain); err != nil {
		panic(err)
	}
	return plain
}

func (s *script) answer(l line) (object, error) {
	ctx := context.Background()
	switch l.Op {
	case "open":
		return s.open(l)
	case "admit":
		return s.admit(l)
	case "admit_batch":
		return s.admitBatch(l)
	case "append":
		return s.append(l)
	case "commit":
		r, err := s.o.Commit(ctx, []messages.CommitStep{{Sequence: s.id(l.Seq), Computed: l.Computed}})
		if err != nil || r[0].Err != nil {
			return nil, errors.Join(err, r[0].Err)
		}
		return object{"new_pages": s.byPool(r[0].NewPages)}, nil
	case "release":
		r, _ := s.o.Release(ctx,
			[]messages.ReleaseStep{{Sequence: s.id(l.Seq), Discard: string(l.Store) == "false"}})
		delete(s.sequences, l.Seq)
		return object{}, r[0].Err
	case "rewind":
		var n int
		_ = json.Unmarshal(l.Tokens, &n)
		return object{}, s.o.RewindOne(ctx, s.id(l.Seq), n)
	case "fork":
		ids, err := forkOf(s.o, s.id(l.Seq), len(l.Into))
		for i, id := range ids {
			s.sequences[l.Into[i]] = &scripted{id, s.sequences[l.Seq].tokens, s.sequences[l.Seq].manual}
		}
		return object{}, err
	case "tables":
		t, err := s.o.TablesOf(ctx, s.id(l.Seq))
		return object{"tables": s.tables(t)}, err
	case "pin":
		p, err := s.o.Pin(ctx, l.prefix())
		s.pins[l.Pin] = p.Pin
		return object{"pinned_tokens": p.Tokens}, err
	case "unpin":
		return object{}, s.o.Unpin(ctx, s.pins[l.Pin])
	default:
		return s.stored(ctx, l)
	}
}

func (s *script) stored(ctx context.Context, l line) (object, error) {
	switch l.Op {
	case "lookup":
		f, err := s.o.Lookup(ctx, l.prefix())
		answer := object{"matched_tokens": f.MatchedTokens, "primary_tokens": f.PrimaryTokens,
			"secondary_tokens": f.SecondaryTokens}
		if s.recurrent() {
			answer["attention_tokens"] = f.AttentionTokens
		}
		return answer, err
	case "fetch":
		n, local, err := oracle.StoreOf(s.o).Fetch(ctx, l.prefix())
		return object{"fetched_blocks": n, "local_tokens": local}, err
	case "flush":
		n, err := oracle.StoreOf(s.o).Flush(ctx, s.id(l.Seq))
		return object{"saved_objects": n}, err
	case "fault":
		s.store.Fail(l.Count)
		return object{}, nil
	case "prefetch":
		n, err := s.o.Prefetch(ctx, l.prefix())
		return object{"onboarded_pages": n}, err
	case "invalidate":
		n, err := s.o.Invalidate(ctx, messages.Selector{Session: l.Session})
		return object{"blocks": n}, err
	case "reset":
		return object{}, s.o.Reset(ctx)
	case "stats":
		st, err := s.o.Stats(ctx)
		return s.stats(st), err
	case "events":
		b, err := s.o.Events(ctx)
		return s.eventList(b), err
	case "verify":
		return object{"checked_pages": 0, "problems": []string{}}, s.o.Check(ctx)
	case "close":
		n, err := s.o.Close(ctx)
		return object{"leaked_pages": n}, err
	}
	panic("op " + l.Op)
}

func (s *script) id(name string) messages.SequenceID {
	if q := s.sequences[name]; q != nil {
		return q.id
	}
	return 0
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
