package script

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// An …Answer is one line of output, its fields in the order in which they are
// written.

// head opens every answer.
type head struct {
	Op string `json:"op"`
	OK bool   `json:"ok"`
}

func done(op string) head { return head{op, true} }

// refused is the answer to a request that changed nothing.
type refused struct {
	head
	Error failure `json:"error"`
}

// The codes of refusals that only the script protocol has.
const (
	codeNotOpen           messages.Code = "not_open"
	codeAlreadyOpen       messages.Code = "already_open"
	codeDuplicateSequence messages.Code = "duplicate_sequence"
)

// failure is the error object.
type failure struct {
	Code    messages.Code `json:"code"`
	Message string        `json:"message"`
	*shortage
}

// shortage is what out_of_pages carries besides.
type shortage struct {
	Pool      string `json:"pool"`
	Need      int    `json:"need"`
	Available int    `json:"available"`
}

// failed makes the answer of a refusal. What is no refusal, and codes that the
// protocol does not know, are internal errors.
func failed(op string, err error) refused { return refused{head{op, false}, failureOf(err)} }

func failureOf(err error) failure {
	var r *messages.Refusal
	if !errors.As(err, &r) {
		return failure{Code: messages.ErrInternal, Message: err.Error()}
	}
	f := failure{Code: r.Code, Message: r.Message}
	switch r.Code {
	case messages.ErrOutOfPages:
		f.shortage = &shortage{r.Pool, r.Need, r.Available}
	case messages.ErrBusy, messages.ErrClosed, messages.ErrFailed:
		f.Code = messages.ErrInternal
	}
	return f
}

// named is a value by pool name.
type named[T any] struct {
	name  string
	value T
}

// byPool is a JSON object whose members are in the order of the pools.
type byPool[T any] []named[T]

// MarshalJSON writes the members in order.
func (b byPool[T]) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, n := range b {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(n.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(n.value)
		if err != nil {
			return nil, err
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

type poolAnswer struct {
	Name           string `json:"name"`
	Window         *int   `json:"window"`   // null: full attention
	KVHeads        *int   `json:"kv_heads"` // null: recurrent states
	Layers         []int  `json:"layers"`
	PageBytes      int64  `json:"page_bytes"`
	PrimaryPages   int    `json:"primary_pages"`
	SecondaryPages int    `json:"secondary_pages"`
}

func poolAnswers(pools []messages.PoolInfo) []poolAnswer {
	out := make([]poolAnswer, len(pools))
	for i, p := range pools {
		out[i] = poolAnswer{p.Name, nil, nil, p.Layers, p.PageBytes, p.PrimaryPages, p.SecondaryPages}
		if !holdsStates(p) {
			out[i].KVHeads = &p.KVHeads
		}
		if p.Window > 0 {
			out[i].Window = &p.Window
		}
	}
	return out
}

// holdsStates reports whether a pool's pages hold recurrent states.
func holdsStates(p messages.PoolInfo) bool { return p.Kind == windows.KindState.String() }

type poolsAnswer struct {
	head
	Pools []poolAnswer `json:"pools"`
}

// tables is the page tables by pool: one table, or one for each beam.
type tables = byPool[any]

type admitAnswer struct {
	head
	Seq          string              `json:"seq"`
	ReusedTokens int                 `json:"reused_tokens"`
	Why          messages.MissReason `json:"why"`
	Tables       tables              `json:"tables"`
	Reuse        byPool[reuseAnswer] `json:"reuse"`
	*statesAnswer
}

// statesAnswer is what an admission answers besides for a model with recurrent
// layers.
type statesAnswer struct {
	Checkpoints     []int `json:"checkpoints"`
	AttentionTokens int   `json:"attention_tokens"`
}

type reuseAnswer struct {
	Full      int                   `json:"full"`
	Partial   int                   `json:"partial"`
	How       messages.PartialReuse `json:"how"`
	Onboarded int                   `json:"onboarded"`
}

type resultsAnswer struct {
	head
	Results []any `json:"results"`
}

type newPages = byPool[[]messages.PageID]

type commitAnswer struct {
	head
	NewPages newPages `json:"new_pages"`
}

// appendAnswer is the result of one step; Error or NewPages is set.
type appendAnswer struct {
	Seq      string   `json:"seq"`
	OK       bool     `json:"ok"`
	NewPages newPages `json:"new_pages,omitempty"`
	Error    *failure `json:"error,omitempty"`
}

type tablesAnswer struct {
	head
	Tables tables `json:"tables"`
}

type lookupAnswer struct {
	head
	MatchedTokens   int `json:"matched_tokens"`
	PrimaryTokens   int `json:"primary_tokens"`
	SecondaryTokens int `json:"secondary_tokens"`
	// AttentionTokens is nil for a model without recurrent layers.
	AttentionTokens *int `json:"attention_tokens,omitempty"`
	// StoredTokens is nil unless the line asks for them.
	StoredTokens *int `json:"stored_tokens,omitempty"`
}

type pinAnswer struct {
	head
	PinnedTokens int `json:"pinned_tokens"`
}

type invalidateAnswer struct {
	head
	Blocks int `json:"blocks"`
}

type prefetchAnswer struct {
	head
	OnboardedPages int `json:"onboarded_pages"`
}

type rebalanceAnswer struct {
	head
	Pools []poolAnswer                 `json:"pools"`
	Moved byPool[[][2]messages.PageID] `json:"moved"`
}

type statsAnswer struct {
	head
	Pools    byPool[tiersAnswer] `json:"pools"`
	Counters countersAnswer      `json:"counters"`
}

type tiersAnswer struct {
	Primary   countAnswer `json:"primary"`
	Secondary countAnswer `json:"secondary"`
}

type countAnswer struct {
	Total  int `json:"total"`
	Used   int `json:"used"`
	Cached int `json:"cached"`
	Free   int `json:"free"`
}

type countersAnswer struct {
	Requests     int64                      `json:"requests"`
	PromptTokens int64                      `json:"prompt_tokens"`
	ReusedTokens int64                      `json:"reused_tokens"`
	Pools        byPool[poolCountersAnswer] `json:"pools"`
}

type poolCountersAnswer struct {
	AllocatedPages int64 `json:"allocated_pages"`
	ReusedFull     int64 `json:"reused_full"`
	ReusedPartial  int64 `json:"reused_partial"`
	Missed         int64 `json:"missed"`
	Evicted        int64 `json:"evicted"`
	Offloaded      int64 `json:"offloaded"`
	Onboarded      int64 `json:"onboarded"`
	Dropped        int64 `json:"dropped"`
	BytesOffloaded int64 `json:"bytes_offloaded"`
	BytesOnboarded int64 `json:"bytes_onboarded"`
	*checkpointsAnswer
}

// checkpointsAnswer is what a state pool counts besides.
type checkpointsAnswer struct {
	Checkpoints        int64 `json:"checkpoints"`
	CheckpointsSkipped int64 `json:"checkpoints_skipped"`
}

type eventsAnswer struct {
	head
	Snapshot bool   `json:"snapshot,omitempty"`
	Events   []any  `json:"events"`
	Lost     uint64 `json:"lost"`
}

type verifyAnswer struct {
	head
	CheckedPages int      `json:"checked_pages"`
	Problems     []string `json:"problems"`
}

type closeAnswer struct {
	head
	LeakedPages int `json:"leaked_pages"`
}

func hexOf(h kvevents.Hash) string { return hex.EncodeToString(h[:]) }
