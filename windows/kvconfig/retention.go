package kvconfig

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// maxDuration bounds durations, in milliseconds: 100 years. What is to last longer has none.
const maxDuration = 100 * 365 * 24 * 3600 * 1000

// ReadRetentionJSON reads the retention of a request from a JSON object with the
// names of TensorRT-LLM's KvCacheRetentionConfig, see the package comment. All
// problems are reported in one error, ErrBadRequest. How ranges lie to one
// another is checked when the request is admitted.
func ReadRetentionJSON(r io.Reader) (*messages.Retention, error) {
	return buildRetention(readJSON(r, retentionText))
}

// ReadRetentionYAML reads the same from a YAML mapping.
func ReadRetentionYAML(r io.Reader) (*messages.Retention, error) {
	return buildRetention(readYAML(r, retentionText))
}

// retentionText names the text in errors.
const retentionText = "the retention"

func buildRetention(entries []entry, err error) (*messages.Retention, error) {
	if err != nil {
		return nil, err
	}
	r := &reading{}
	out := r.retention(entries)
	if len(r.problems) > 0 {
		return nil, refusals.New(messages.ErrBadRequest, "%s", strings.Join(r.problems, "; "))
	}
	return &out, nil
}

// debugging is why transfer_mode and directory are refused.
const debugging = "an option for debugging, which TensorRT-LLM advises against; " +
	"a store keeps pages in files"

// retention reads the fields of a KvCacheRetentionConfig. Blocks of generated tokens have a
// retention of their own if one of its fields is there.
func (r *reading) retention(entries []entry) (out messages.Retention) {
	decode := messages.DecodeRetention{Priority: messages.DefaultPriority}
	forDecode := func(set setter) setter {
		return func(r *reading, e entry) {
			out.Decode = &decode
			set(r, e)
		}
	}
	set := func(r *reading, e entry) { r.priority(e, &decode.Priority) }
	priority := forDecode(func(r *reading, e entry) { r.named("decode_retention_priority", e, set) })
	r.object("", entries, map[string]setter{
		"token_range_retention_configs": func(r *reading, e entry) { out.Ranges = r.ranges(e) },
		"decode_retention_priority":     priority,
		"decode_retention_policy":       priority,
		"decode_duration_ms": forDecode(func(r *reading,
			e entry) {
			r.duration(e, &decode.Duration)
		}),
		"transfer_mode": refused(aString, debugging, "DRAM"),
		"directory":     refused(aString, debugging, ""),
	})
	return out
}

// ranges reads a list of TokenRangeRetentionConfig.
func (r *reading) ranges(e entry) (out []messages.RetentionRange) {
	if !r.check(e, aList) {
		return nil
	}
	for i, v := range e.value.([]any) {
		item := entry{fmt.Sprintf("%s[%d]", e.name, i), v}
		if r.check(item, anObject) {
			out = append(out, r.tokenRange(item))
		}
	}
	return out
}

// tokenRange reads a TokenRangeRetentionConfig. The end may be left out: it is the prompt's then.
func (r *reading) tokenRange(e entry) messages.RetentionRange {
	out := messages.RetentionRange{Start: -1, End: messages.EndOfPrompt,
		Priority: messages.DefaultPriority}
	problems := len(r.problems)
	r.object(e.name+".", e.value.([]entry), map[string]setter{
		"token_start": func(r *reading, e entry) {
			r.within(e, 0, math.MaxInt32, func(n int64) { out.Start = int(n) })
		},
		"token_end": func(r *reading, e entry) {
			r.within(e, 0, math.MaxInt32, func(n int64) { out.End = int(n) })
		},
		"priority":    func(r *reading, e entry) { r.priority(e, &out.Priority) },
		"duration_ms": func(r *reading, e entry) { r.duration(e, &out.Duration) },
	})
	switch {
	case len(r.problems) > problems:
	case out.Start < 0:
		r.say("%s.token_start is missing", e.name)
	case out.End != messages.EndOfPrompt && out.End <= out.Start:
		r.say("%s is empty: [%d, %d)", e.name, out.Start, out.End)
	}
	return out
}

func (r *reading) priority(e entry, to *messages.Priority) {
	r.within(e, 0, int64(messages.MaxPriority), func(n int64) { *to = messages.Priority(n) })
}

func (r *reading) duration(e entry, to *time.Duration) {
	r.within(e, 1, maxDuration, func(n int64) { *to = time.Duration(n) * time.Millisecond })
}

// within sets an integer of [low, high].
func (r *reading) within(e entry, low, high int64, set func(int64)) {
	v, ok := r.integer(e)
	switch {
	case !ok:
	case v < low || v > high:
		r.say("%s %d is not between %d and %d", e.name, v, low, high)
	default:
		set(v)
	}
}
