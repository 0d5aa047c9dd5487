package script

import (
	"bytes"
	"encoding/hex"
	"math"
	"time"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// A …Line is a request whose shape is right and whose values are unchecked. Its
// methods check them.

// prefixLine is tokens with their namespace.
type prefixLine struct {
	tokens     tokensLine
	salt, lora *string
	items      []itemLine
}

// tokensLine is a list of tokens, or a count of consecutive ones.
type tokensLine struct {
	list        []messages.Token
	wrong       *int64 // the first value of the list that is no token
	run         bool
	from, count int64
}

type itemLine struct {
	hash          string
	start, length int64
}

type admitLine struct {
	seq                    string
	prefix                 prefixLine
	session                *string
	retention              *retentionLine
	copied                 *messages.Retention // from kv_cache_retention_config
	beamWidth, chunkTokens *int64
	prefill                *string
}

type retentionLine struct {
	ranges                         []rangeLine
	decodePriority, decodeDuration *int64
}

type rangeLine struct {
	start, priority int64
	end, duration   *int64
}

func (o *object) admit() admitLine {
	a := admitLine{
		seq: o.text("seq"), prefix: o.prefix(), session: o.optText("session"),
		beamWidth: o.optInt("beam_width"), chunkTokens: o.optInt("chunk_tokens"),
		prefill: o.optText("prefill"),
	}
	if r := o.child("retention"); r != nil {
		a.retention = r.retention()
	}
	a.copied = o.retentionConfig()
	o.end()
	return a
}

// retentionConfig reads a retention with TensorRT-LLM's names, of which kvconfig knows.
func (o *object) retentionConfig() *messages.Retention {
	value, ok := o.take("kv_cache_retention_config")
	if !ok {
		return nil
	}
	r, err := kvconfig.ReadRetentionJSON(bytes.NewReader(value))
	if err != nil {
		o.fail("%s: field %skv_cache_retention_config: %v", o.op, o.path, err)
	}
	return r
}

func (o *object) retention() *retentionLine {
	r := &retentionLine{decodePriority: o.optInt("decode_priority"),
		decodeDuration: o.optInt("decode_duration_ms")}
	o.objects("ranges", func(o *object) {
		r.ranges = append(r.ranges, rangeLine{
			start: o.int("start"), priority: o.int("priority"), end: o.optInt("end"),
			duration: o.optInt("duration_ms"),
		})
		o.end()
	})
	o.end()
	return r
}

func (o *object) prefix() prefixLine {
	p := prefixLine{tokens: o.tokens(), salt: o.optText("salt"), lora: o.optText("lora")}
	o.objects("multimodal", func(o *object) {
		p.items = append(p.items, itemLine{hash: o.text("hash"), start: o.int("start"),
			length: o.int("length")})
		o.end()
	})
	return p
}

// tokens reads the field of that name, in either form.
func (o *object) tokens() tokensLine {
	var t tokensLine
	value, ok := o.take("tokens")
	switch {
	case !ok:
		o.missing("tokens")
	case value.kind() == kindObject:
		run := newObject(o.op, o.path+"tokens.", value, o.shape)
		t = tokensLine{run: true, from: run.int("from"), count: run.int("count")}
		run.end()
	case value.kind() != kindList:
		o.wrong("tokens", value, `a list or {"from","count"}`)
	default:
		t.list = []messages.Token{}
		o.list("tokens", func(at string, item raw) {
			n, ok := integer(item)
			if !ok {
				o.wrong(at, item, "an integer")
				return
			}
			if !isToken(n) && t.wrong == nil {
				t.wrong = &n
			}
			t.list = append(t.list, messages.Token(n)) // refused as a value if it does not fit
		})
	}
	return t
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
	case t.run && t.count < 1:
		return nil, bad(op, "tokens.count %d is not 1 or more", t.count)
	case t.run && (!isToken(t.from) || t.count > int64(messages.MaxToken)-t.from+1):
		return nil, bad(op, "%d tokens from %d on do not lie between 0 and %d", t.count, t.from,
			messages.MaxToken)
	case !t.run && len(t.list) == 0:
		return nil, bad(op, "tokens is empty")
	case !t.run:
		return t.list, nil
	case t.count > maxWritten:
		return nil, nil
	}
	list := make([]messages.Token, t.count)
	for i := range list {
		list[i] = messages.Token(t.from + int64(i))
	}
	return list, nil
}

// length is how many tokens there are.
func (t tokensLine) length() int64 {
	if t.run {
		return t.count
	}
	return int64(len(t.list))
}

// namespace checks salt and LoRA.
func (p prefixLine) namespace(op string) (messages.Namespace, error) {
	var ns messages.Namespace
	if p.salt != nil {
		if *p.salt == "" {
			return ns, bad(op, "salt is empty; leave it out for none")
		}
		ns.Salt = *p.salt
	}
	if p.lora != nil {
		ns.LoRA, ns.HasLoRA = *p.lora, true
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
	tokens, err := p.tokens.values(op)
	if err != nil {
		return messages.Prefix{}, err
	}
	out := messages.Prefix{Namespace: ns, Tokens: tokens}
	for _, item := range p.items {
		m := messages.MultimodalItem{Start: int(item.start), Length: int(item.length)}
		if n, err := hex.Decode(m.Hash[:], hashText(item.hash)); err != nil || n != len(m.Hash) {
			return messages.Prefix{}, bad(op, "multimodal hash %q is not %d hex digits", item.hash,
				2*len(m.Hash))
		}
		// Also what would overflow when the two are added.
		if item.start < 0 || item.length < 1 || item.length > p.tokens.length()-item.start {
			return messages.Prefix{},
				bad(op, "multimodal item of %d tokens from %d on is not inside the prompt of %d tokens",
					item.length, item.start, p.tokens.length())
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
	prefix, err := a.prefix.value(op)
	if err != nil {
		return messages.AdmitRequest{}, err
	}
	r := messages.AdmitRequest{Namespace: prefix.Namespace, Tokens: prefix.Tokens,
		Multimodal: prefix.Multimodal}
	if a.session != nil {
		r.Session = sessionName(*a.session)
	}
	if a.prefill != nil && *a.prefill != "auto" && *a.prefill != "manual" {
		return r, bad(op, `prefill %q is neither "auto" nor "manual"`, *a.prefill)
	}
	// The engine takes 0 for "not given", so 0 given is refused here.
	if a.beamWidth != nil {
		if *a.beamWidth < 1 {
			return r, bad(op, "beam_width %d is not 1 or more", *a.beamWidth)
		}
		r.BeamWidth = int(*a.beamWidth)
	}
	if a.chunkTokens != nil {
		if *a.chunkTokens < 1 {
			return r, bad(op, "chunk_tokens %d is not a positive multiple of tokens_per_block",
				*a.chunkTokens)
		}
		r.ChunkTokens = int(*a.chunkTokens)
	}
	r.Retention = a.copied
	if a.retention != nil {
		if a.copied != nil {
			return r, bad(op, "retention and kv_cache_retention_config are one option under two names")
		}
		r.Retention, err = a.retention.value(op)
	}
	return r, err
}

// value checks priorities, durations and ends; how ranges lie to one another is
// checked by the engine.
func (r retentionLine) value(op string) (*messages.Retention, error) {
	out := &messages.Retention{}
	for _, l := range r.ranges {
		priority, err := priority(op, l.priority)
		if err != nil {
			return nil, err
		}
		d, err := duration(op, "duration_ms", l.duration)
		if err != nil {
			return nil, err
		}
		end := messages.EndOfPrompt
		if l.end != nil {
			// An end of −1 would mean the end of the prompt to the engine.
			if *l.end <= l.start {
				return nil, bad(op, "retention range [%d, %d) is empty", l.start, *l.end)
			}
			end = int(*l.end)
		}
		if l.start < 0 {
			return nil, bad(op, "retention range starts at %d", l.start)
		}
		out.Ranges = append(out.Ranges, messages.RetentionRange{Start: int(l.start), End: end,
			Priority: priority, Duration: d})
	}
	if r.decodePriority == nil && r.decodeDuration == nil {
		return out, nil
	}
	out.Decode = &messages.DecodeRetention{Priority: messages.DefaultPriority}
	var err error
	if r.decodePriority != nil {
		if out.Decode.Priority, err = priority(op, *r.decodePriority); err != nil {
			return nil, err
		}
	}
	out.Decode.Duration, err = duration(op, "decode_duration_ms", r.decodeDuration)
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
