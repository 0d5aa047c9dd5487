package daemon

import (
	"encoding/binary"
	"time"
	"unsafe"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// tokenBytes is the size of a token and of a page number on the wire.
const tokenBytes = 4

// readTokens reads packed tokens. They take the place of their bytes in the message.
func readTokens(packed []byte) ([]kvactor.Token, *wire.Error) {
	if len(packed) == 0 || len(packed)%tokenBytes != 0 {
		return nil, badf("%d bytes are no tokens of %d bytes each", len(packed), tokenBytes)
	}
	tokens := unsafe.Slice((*kvactor.Token)(unsafe.Pointer(&packed[0])), len(packed)/tokenBytes)
	for i := range tokens {
		tokens[i] = kvactor.Token(binary.LittleEndian.Uint32(packed[i*tokenBytes:]))
		if tokens[i] < 0 {
			return nil, badf("the token at position %d is over 2^31-1", i) // no token in a message
		}
	}
	return tokens, nil
}

// readPrompt reads a prompt.
func readPrompt(p *wire.Prompt) (kvactor.Prefix, *wire.Error) {
	tokens, wrong := readTokens(p.GetTokens())
	if wrong != nil {
		return kvactor.Prefix{}, wrong
	}
	prefix := kvactor.Prefix{
		Namespace: kvactor.Namespace{Salt: p.GetSalt(), LoRA: p.GetAdapter(),
			HasLoRA: p != nil && p.Adapter != nil},
		Tokens: tokens,
	}
	for i, item := range p.GetItems() {
		m := kvactor.MultimodalItem{Start: int(item.GetStart()), Length: int(item.GetLength())}
		if copy(m.Hash[:], item.GetHash()) != len(m.Hash) || len(item.GetHash()) != len(m.Hash) {
			return kvactor.Prefix{}, badf("items[%d].hash has %d bytes, not %d", i, len(item.GetHash()),
				len(m.Hash))
		}
		prefix.Multimodal = append(prefix.Multimodal, m)
	}
	return prefix, nil
}

// readRetention reads a retention; nil for none.
func readRetention(r *wire.Retention) (*kvactor.Retention, *wire.Error) {
	if r == nil {
		return nil, nil
	}
	var out kvactor.Retention
	for i, x := range r.GetRanges() {
		priority, duration, wrong := readPriority(x)
		if wrong != nil {
			return nil, badf("retention.ranges[%d]: %s", i, wrong.GetMessage())
		}
		end := kvactor.EndOfPrompt
		if x.End != nil {
			end = int(x.GetEnd())
		}
		out.Ranges = append(out.Ranges, kvactor.RetentionRange{Start: int(x.GetStart()), End: end,
			Priority: priority, Duration: duration})
	}
	if d := r.GetDecode(); d != nil {
		priority, duration, wrong := readPriority(d)
		if wrong != nil || d.GetStart() != 0 || d.End != nil {
			return nil, badf("retention.decode: a priority and a duration in bounds, without start and end")
		}
		out.Decode = &kvactor.DecodeRetention{Priority: priority, Duration: duration}
	}
	return &out, nil
}

// maxDuration bounds durations of retention: 100 years in milliseconds.
const maxDuration = 100 * 365 * 24 * 3600 * 1000

func readPriority(x *wire.RetentionRange) (kvactor.Priority, time.Duration, *wire.Error) {
	if x.GetPriority() > uint32(kvactor.MaxPriority) {
		return 0, 0, badf("priority %d is over %d", x.GetPriority(), kvactor.MaxPriority)
	}
	if x.GetDurationMs() > maxDuration {
		return 0, 0, badf("a duration of %d ms is over %d", x.GetDurationMs(), uint64(maxDuration))
	}
	return kvactor.Priority(x.GetPriority()), time.Duration(x.GetDurationMs()) * time.Millisecond, nil
}

// readSelector reads what is to be forgotten.
func readSelector(x *wire.Selector) (kvactor.Selector, *wire.Error) {
	out := kvactor.Selector{Session: x.GetSession(), Salt: x.GetSalt(), LoRA: x.GetAdapter(),
		HasLoRA: x.Adapter != nil}
	if x.GetPrefix() == nil {
		return out, nil
	}
	prefix, wrong := readPrompt(x.GetPrefix())
	out.Prefix = &prefix
	return out, wrong
}

// packPages adds page numbers to the answer.
func packPages(pages []kvactor.PageID) []byte {
	packed := make([]byte, 0, len(pages)*tokenBytes)
	for _, page := range pages {
		packed = binary.LittleEndian.AppendUint32(packed, uint32(page))
	}
	return packed
}
