package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/kvactor/kvactor/messages"
)

// Bounds of a lookup.
const (
	maxLookupBytes  = 1 << 20
	maxLookupTokens = 1 << 18
)

// Lookup is the answer to a prompt that a visitor has looked up.
type Lookup struct {
	Tokens  int                 `json:"tokens"`  // of the prompt
	Matched int                 `json:"matched"` // that an admission would reuse
	Device  int                 `json:"device"`  // of these, in device memory
	Host    int                 `json:"host"`    // and in host memory
	Reason  messages.MissReason `json:"reason"`  // why there are no more
	Chat    bool                `json:"chat"`    // the prompt was taken as the first message of a chat
}

// lookup answers a prompt: {"prompt": "…"}. It changes nothing in the cache, not even when a
// block was last used.
func (p *Page) lookup(w http.ResponseWriter, r *http.Request) {
	text, err := readPrompt(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := p.find(r.Context(), text)
	switch {
	case errors.Is(err, messages.ErrBadRequest), errors.Is(err, messages.ErrTooLong),
		errors.Is(err, messages.ErrNotSupported), errors.Is(err, errPrompt):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, "the engine does not answer", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(answer) // an error: the visitor has gone
	}
}

// readPrompt reads the body of a lookup.
func readPrompt(body io.Reader) (string, error) {
	var asked struct {
		Prompt string `json:"prompt"`
	}
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&asked); err != nil {
		var large *http.MaxBytesError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &large):
			return "", fmt.Errorf("the body is too large: at most %d bytes", large.Limit)
		case errors.As(err, &kind): // its words are Go's
			return "", fmt.Errorf("want {\"prompt\": \"TEXT\"}, not a JSON %s there", kind.Value)
		}
		return "", fmt.Errorf("the body is not {\"prompt\": \"TEXT\"}: %s",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return "", errors.New("more than one value")
	}
	return asked.Prompt, nil
}

// errPrompt is the error of a prompt that has no tokens.
var errPrompt = errors.New("no prompt")

// find looks a prompt up, in the form of which more is cached.
func (p *Page) find(ctx context.Context, text string) (Lookup, error) {
	encode := p.o.Encode
	if encode == nil {
		encode = numbers
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := p.findAs(ctx, text, encode)
	if err != nil || p.o.EncodeChat == nil {
		return found, err
	}
	// A chat is longer than its text, perhaps too long.
	if chat, err := p.findAs(ctx, text, p.o.EncodeChat); err == nil && chat.Matched > found.Matched {
		chat.Chat = true
		return chat, nil
	}
	return found, nil
}

// findAs looks a prompt up in one form.
func (p *Page) findAs(
	ctx context.Context, text string, encode func(string) ([]messages.Token, error),
) (Lookup, error) {
	tokens, err := encode(text)
	if err != nil {
		return Lookup{}, fmt.Errorf("%w: %w", errPrompt, err)
	}
	if len(tokens) == 0 || len(tokens) > maxLookupTokens {
		return Lookup{}, fmt.Errorf("%w: %d tokens, want 1 to %d", errPrompt, len(tokens),
			maxLookupTokens)
	}
	m := &messages.Lookup{Prefix: messages.Prefix{Tokens: tokens}}
	if err := p.o.Source.Do(ctx, m); err != nil {
		return Lookup{}, err
	}
	return Lookup{
		Tokens: len(tokens), Matched: m.Found.MatchedTokens, Device: m.Found.PrimaryTokens,
		Host: m.Found.SecondaryTokens, Reason: m.MissReason,
	}, m.Err
}

// numbers reads tokens as decimal numbers with blanks or commas between them. a-b stands
// for all tokens from a to b.
func numbers(text string) (tokens []messages.Token, err error) {
	separates := func(c rune) bool {
		return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'
	}
	for _, field := range strings.FieldsFunc(text, separates) {
		from, to, run := strings.Cut(field, "-")
		if !run {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 31)
		if err != nil {
			return nil, err
		}
		b, err := strconv.ParseUint(to, 10, 31)
		if err != nil {
			return nil, err
		}
		if b < a || b-a >= uint64(maxLookupTokens-len(tokens)) {
			return nil, fmt.Errorf("%s: not a range, or more than %d tokens", field, maxLookupTokens)
		}
		for ; a <= b; a++ {
			tokens = append(tokens, messages.Token(a))
		}
	}
	return tokens, nil
}
