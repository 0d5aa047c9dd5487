package fleet

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/messages"
)

// Settings are those of one engine.
type Settings struct {
	// Shape is one of Models; "" is the first of them.
	Shape          string `json:"shape"`
	TokensPerBlock int    `json:"tokens_per_block"`
	Pages          int    `json:"pages"` // of each pool, as are HostPages
	HostPages      int    `json:"host_pages"`
	// Store is the URL of the store, for an engine in a process; "": none.
	Store string `json:"store"`
	// Model names the weights in the store. A run that begins with an empty store has a
	// name of its own.
	Model string `json:"model"`
	// Save is when pages are saved.
	Save actors.SavePolicy `json:"save"`
	// StoreGbit is the bandwidth of the modelled link to the store in Gbit/s.
	StoreGbit float64 `json:"store_gbit"`
	// AwaitSaves waits behind each call until what it saves is written. A run without it
	// depends on when its tasks run.
	AwaitSaves bool `json:"await_saves"`
}

// Tokens are written in JSON as base64 of four bytes each, little-endian.
type Tokens []messages.Token

// MarshalJSON implements json.Marshaler.
func (t Tokens) MarshalJSON() ([]byte, error) {
	raw := make([]byte, 0, 4*len(t))
	for _, token := range t {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(token))
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(raw))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Tokens) UnmarshalJSON(text []byte) error {
	var raw []byte // which encoding/json reads from base64
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return fmt.Errorf("%d bytes are no tokens of four", len(raw))
	}
	*t = make(Tokens, len(raw)/4)
	for i := range *t {
		(*t)[i] = messages.Token(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// Request is a prompt for an engine, and the answer that its model will sample.
type Request struct {
	Number  int           `json:"number"`
	Prompt  Tokens        `json:"prompt"`
	Answer  Tokens        `json:"answer"`
	Arrival time.Duration `json:"arrival"`
}

// Window orders an engine to take requests and to serve up to a time.
type Window struct {
	Until    time.Duration `json:"until"`
	Requests []Request     `json:"requests,omitempty"`
	// Finish orders to check every page instead, and to close.
	Finish bool `json:"finish,omitempty"`
}

// Answer is what became of a request. Times are those of the fleet.
type Answer struct {
	Number  int           `json:"number"`
	Reused  int           `json:"reused"` // prompt tokens that were not computed
	First   time.Duration `json:"first"`  // when the first token was there
	Done    time.Duration `json:"done"`
	GivenUp bool          `json:"given_up,omitempty"`
}

// Reply is what an engine has done in a window. Counters are those since it started.
type Reply struct {
	Started []int             `json:"started,omitempty"` // requests that have their first token
	Done    []Answer          `json:"done,omitempty"`
	Totals  serve.Totals      `json:"totals"`
	Store   actors.StoreStats `json:"store"`
	// StoreRead and StoreWritten are bytes of the modelled model.
	StoreRead    int64 `json:"store_read"`
	StoreWritten int64 `json:"store_written"`
	// Fetching is the modelled time that admissions have waited for the store.
	Fetching time.Duration `json:"fetching"`
	// Next is the sequence of the next published batch: a router that has followed all
	// before it knows the cache as it is.
	Next uint64 `json:"next"`
	// Checked and Problems answer a Finish.
	Checked  int      `json:"checked,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Blocks   int      `json:"blocks,omitempty"` // that are published at the end
	Error    string   `json:"error,omitempty"`
}
