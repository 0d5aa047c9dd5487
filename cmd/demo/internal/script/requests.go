package script

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// A …Line is a part of a request whose shape is right and whose values are unchecked. Its
// methods check them.

// namespaceLine is what a prefix has beside its tokens.
type namespaceLine struct {
	Salt       *string    `json:"salt"`
	LoRA       *string    `json:"lora"`
	Multimodal []itemLine `json:"multimodal,omitempty"`
}

// prefixLine is tokens with their namespace.
type prefixLine struct {
	Tokens tokensLine `json:"tokens"`
	namespaceLine
}

// tokensLine is a list of tokens, or a count of consecutive ones.
type tokensLine struct {
	list  []messages.Token
	wrong *int64   // the first value of the list that is no token
	run   *runLine // nil: a list
}

type runLine struct {
	From  int64 `json:"from"`
	Count int64 `json:"count"`
}

type itemLine struct {
	Hash   string `json:"hash"`
	Start  int64  `json:"start"`
	Length int64  `json:"length"`
}

type admitLine struct {
	Seq string `json:"seq"`
	prefixLine
	Session     *string        `json:"session"`
	Retention   *retentionLine `json:"retention"`
	Copied      *copiedLine    `json:"kv_cache_retention_config"`
	BeamWidth   *int64         `json:"beam_width"`
	ChunkTokens *int64         `json:"chunk_tokens"`
	Prefill     *string        `json:"prefill"`
}

type retentionLine struct {
	Ranges         []rangeLine `json:"ranges,omitempty"`
	DecodePriority *int64      `json:"decode_priority"`
	DecodeDuration *int64      `json:"decode_duration_ms"`
}

type rangeLine struct {
	Start    int64  `json:"start"`
	Priority int64  `json:"priority"`
	End      *int64 `json:"end"`
	Duration *int64 `json:"duration_ms"`
}

// copiedLine is a retention with TensorRT-LLM's names, of which kvconfig knows.
type copiedLine struct{ retention *messages.Retention }

func (l *copiedLine) read(r *reader, path string, value []byte) {
	var err error
	if l.retention, err = kvconfig.ReadRetentionJSON(bytes.NewReader(value)); err != nil {
		r.fail("field %s: %v", path, err)
	}
}

// read reads either form.
func (t *tokensLine) read(r *reader, path string, value []byte) {
	if kind(value) == "an object" {
		r.read(path, value, reflect.ValueOf(&t.run).Elem())
		return
	}
	items := r.list(path, value, `a list or {"from","count"}`)
	t.list = make([]messages.Token, 0, len(items))
	for i, item := range items {
		n, ok := integer(item)
		if !ok {
			r.wrong(fmt.Sprintf("%s[%d]", path, i), item, "an integer")
			return
		}
		if !isToken(n) && t.wrong == nil {
			t.wrong = &n
		}
		t.list = append(t.list, messages.Token(n)) // refused as a value if it does not fit
	}
}

// or is an optional value with its default.
func or[T any](given *T, absent T) T {
	if given != nil {
		return *given
	}
	return absent
}

func isToken(n int64) bool { return n >= 0 && n <= int64(messages.MaxToken) }

// maxWritten is the longest run of consecutive tokens that is written out. A
// longer one is too long for the engine and not worth the memory.
const maxWritten = 1 << 24

func bad(op, format string, args ...any) error {
	return refusals.New(messages.ErrBadRequest, op+": "+format, args...)
}

// values returns the ids. It returns none for a run longer than maxWritten;
// length returns how many there would be.
func (t tokensLine) values(op string) ([]messages.Token, error) {
	switch {
	case t.wrong != nil:
		return nil, bad(op, "token %d is not between 0 and %d", *t.wrong, messages.MaxToken)
	case t.run == nil && len(t.list) == 0:
		return nil, bad(op, "tokens is empty")
	case t.run == nil:
		return t.list, nil
	case t.run.Count < 1:
		return nil, bad(op, "tokens.count %d is not 1 or more", t.run.Count)
	case !isToken(t.run.From) || t.run.Count > int64(messages.MaxToken)-t.run.From+1:
		return nil, bad(op, "%d tokens from %d on do not lie between 0 and %d", t.run.Count,
			t.run.From, messages.MaxToken)
	case t.run.Count > maxWritten:
		return nil, nil
	}
	list := make([]messages.Token, t.run.Count)
	for i := range list {
		list[i] = messages.Token(t.run.From + int64(i))
	}
	return list, nil
}

// length is how many tokens there are.
func (t tokensLine) length() int64 {
	if t.run != nil {
		return t.run.Count
	}
	return int64(len(t.list))
}

// namespace checks salt and LoRA.
func (p namespaceLine) namespace(op string) (messages.Namespace, error) {
	var ns messages.Namespace
	if p.Salt != nil {
		if *p.Salt == "" {
			return ns, bad(op, "salt is empty; leave it out for none")
		}
		ns.Salt = *p.Salt
	}
	if p.LoRA != nil {
		ns.LoRA, ns.HasLoRA = *p.LoRA, true
	}
	return ns, nil
}

// value checks a prefix as far as this package can: where the items lie is the
// engine's to check.
func (p prefixLine) value(op string) (messages.Prefix, error) {
	ns, err := p.namespace(op)
	if err != nil {
		return messages.Prefix{}, err
	}
	tokens, err := p.Tokens.values(op)
	if err != nil {
		return messages.Prefix{}, err
	}
	out := messages.Prefix{Namespace: ns, Tokens: tokens}
	for _, item := range p.Multimodal {
		m := messages.MultimodalItem{Start: int(item.Start), Length: int(item.Length)}
		if n, err := hex.Decode(m.Hash[:], hashText(item.Hash)); err != nil || n != len(m.Hash) {
			return messages.Prefix{}, bad(op, "multimodal hash %q is not %d hex digits", item.Hash,
				2*len(m.Hash))
		}
		// Also what would overflow when the two are added.
		if item.Start < 0 || item.Length < 1 || item.Length > p.Tokens.length()-item.Start {
			return messages.Prefix{},
				bad(op, "multimodal item of %d tokens from %d on is not inside the prompt of %d tokens",
					item.Length, item.Start, p.Tokens.length())
		}
		out.Multimodal = append(out.Multimodal, m)
	}
	return out, nil
}

// hashText cuts what is too long to decode into 32 bytes.
func hashText(s string) []byte {
	const digits = 2 * len(messages.MultimodalItem{}.Hash)
	if len(s) != digits {
		return nil
	}
	return []byte(s)
}

// value checks an admission, names and state apart.
func (a admitLine) value(op string) (messages.AdmitRequest, error) {
	prefix, err := a.prefixLine.value(op)
	if err != nil {
		return messages.AdmitRequest{}, err
	}
	r := messages.AdmitRequest{Namespace: prefix.Namespace, Tokens: prefix.Tokens,
		Multimodal: prefix.Multimodal}
	if a.Session != nil {
		r.Session = sessionName(*a.Session)
	}
	if a.Prefill != nil && *a.Prefill != "auto" && *a.Prefill != "manual" {
		return r, bad(op, `prefill %q is neither "auto" nor "manual"`, *a.Prefill)
	}
	// The engine takes 0 for "not given", so 0 given is refused here.
	if a.BeamWidth != nil {
		if *a.BeamWidth < 1 {
			return r, bad(op, "beam_width %d is not 1 or more", *a.BeamWidth)
		}
		r.BeamWidth = int(*a.BeamWidth)
	}
	if a.ChunkTokens != nil {
		if *a.ChunkTokens < 1 {
			return r, bad(op, "chunk_tokens %d is not a positive multiple of tokens_per_block",
				*a.ChunkTokens)
		}
		r.ChunkTokens = int(*a.ChunkTokens)
	}
	if a.Copied != nil {
		r.Retention = a.Copied.retention
	}
	if a.Retention != nil {
		if a.Copied != nil {
			return r, bad(op, "retention and kv_cache_retention_config are one option under two names")
		}
		r.Retention, err = a.Retention.value(op)
	}
	return r, err
}

// value checks priorities, durations and ends; how ranges lie to one another is
// checked by the engine.
func (r retentionLine) value(op string) (*messages.Retention, error) {
	out := &messages.Retention{}
	for _, l := range r.Ranges {
		priority, err := priority(op, l.Priority)
		if err != nil {
			return nil, err
		}
		d, err := duration(op, "duration_ms", l.Duration)
		if err != nil {
			return nil, err
		}
		end := messages.EndOfPrompt
		if l.End != nil {
			// An end of −1 would mean the end of the prompt to the engine.
			if *l.End <= l.Start {
				return nil, bad(op, "retention range [%d, %d) is empty", l.Start, *l.End)
			}
			end = int(*l.End)
		}
		if l.Start < 0 {
			return nil, bad(op, "retention range starts at %d", l.Start)
		}
		out.Ranges = append(out.Ranges, messages.RetentionRange{Start: int(l.Start), End: end,
			Priority: priority, Duration: d})
	}
	if r.DecodePriority == nil && r.DecodeDuration == nil {
		return out, nil
	}
	out.Decode = &messages.DecodeRetention{Priority: messages.DefaultPriority}
	var err error
	if r.DecodePriority != nil {
		if out.Decode.Priority, err = priority(op, *r.DecodePriority); err != nil {
			return nil, err
		}
	}
	out.Decode.Duration, err = duration(op, "decode_duration_ms", r.DecodeDuration)
	return out, err
}

func priority(op string, n int64) (messages.Priority, error) {
	if n < 0 || n > int64(messages.MaxPriority) {
		return 0, bad(op, "priority %d is not between 0 and %d", n, messages.MaxPriority)
	}
	return messages.Priority(n), nil
}

// maxTime bounds the virtual clock, and a duration becomes at most twice as
// much: their sum stays below what a time.Duration holds, and a timer of that
// length never fires.
const maxTime = 90 * 365 * 24 * time.Hour

// duration is a time in milliseconds; 0 for none.
func duration(op, name string, ms *int64) (time.Duration, error) {
	switch {
	case ms == nil:
		return 0, nil
	case *ms < 1:
		return 0, bad(op, "%s %d is not 1 or more", name, *ms)
	case *ms > math.MaxInt64/int64(time.Millisecond):
		return 2 * maxTime, nil
	}
	return min(time.Duration(*ms)*time.Millisecond, 2*maxTime), nil
}

// sessionName is what the engine is told of a session. To the engine the empty
// name means none; here it is a session like any other.
func sessionName(s string) string {
	if s == "" || s[0] == 0 {
		return "\x00" + s
	}
	return s
}
