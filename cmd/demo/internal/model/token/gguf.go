package token

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/messages"
)

// The kinds of tokens in tokenizer.ggml.token_type.
const (
	ggufControl     = 3
	ggufUserDefined = 4
)

// ggufSplits are the patterns of tokenizer.ggml.pre, one of the other's pieces.
var ggufSplits = map[string][]string{
	"default": {gpt2Pattern}, "gpt-2": {gpt2Pattern}, "smollm": {digitPattern, gpt2Pattern},
	"llama-bpe": {llama3Pattern}, "llama3": {llama3Pattern}, "qwen2": {qwen2Pattern},
}

// FromGGUF makes the tokenizer of a GGUF file's metadata.
func FromGGUF(meta map[string]any) (*Tokenizer, error) {
	tokens, err := texts(meta, "tokenizer.ggml.tokens")
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{BOS: ggufToken(meta, "bos", len(tokens)), EOS: ggufToken(meta, "eos", len(tokens))}
	special, control := map[messages.Token]bool{}, map[messages.Token]bool{}
	kinds, _ := meta["tokenizer.ggml.token_type"].([]any)
	for i, k := range kinds[:min(len(kinds), len(tokens))] {
		switch number(k) {
		case ggufControl:
			special[messages.Token(i)], control[messages.Token(i)] = true, true
		case ggufUserDefined:
			special[messages.Token(i)] = true
		}
	}
	t.setTokens(tokens, special, control)
	switch kind, _ := meta["tokenizer.ggml.model"].(string); kind {
	case "gpt2":
		t.AddBOS, _ = meta["tokenizer.ggml.add_bos_token"].(bool)
		return t, t.ggufWords(meta)
	case "llama":
		return t, t.ggufPieces(meta)
	default:
		return nil, fmt.Errorf("tokenizer.ggml.model: %q is not supported, only gpt2, llama", kind)
	}
}

// ggufWords reads what byte-level BPE needs.
func (t *Tokenizer) ggufWords(meta map[string]any) error {
	pre, _ := meta["tokenizer.ggml.pre"].(string)
	patterns, ok := ggufSplits[pre]
	if !ok {
		return fmt.Errorf("tokenizer.ggml.pre: %q is not supported", pre)
	}
	for _, p := range patterns {
		s, err := newSplitter(p)
		if err != nil {
			return err
		}
		t.splits = append(t.splits, s)
	}
	merges, err := texts(meta, "tokenizer.ggml.merges")
	if err != nil {
		return err
	}
	return t.setMerges(cutMerges(merges))
}

// cutMerges cuts "a b" in two. Neither part has a space: it is written Ġ or ▁.
func cutMerges(merges []string) [][2]string {
	out := make([][2]string, len(merges))
	for i, m := range merges {
		out[i][0], out[i][1], _ = strings.Cut(m, " ")
	}
	return out
}

// ggufPieces reads what SentencePiece's BPE needs.
func (t *Tokenizer) ggufPieces(meta map[string]any) error {
	scores, _ := meta["tokenizer.ggml.scores"].([]any)
	if len(scores) != len(t.tokens) {
		return fmt.Errorf("tokenizer.ggml.scores: %d for %d tokens", len(scores), len(t.tokens))
	}
	t.scores = make([]float32, len(scores))
	for i, s := range scores {
		t.scores[i] = float32(number(s))
	}
	t.pieces, t.AddBOS, t.prefix = true, true, true
	if add, ok := meta["tokenizer.ggml.add_bos_token"].(bool); ok {
		t.AddBOS = add
	}
	if add, ok := meta["tokenizer.ggml.add_space_prefix"].(bool); ok {
		t.prefix = add
	}
	return nil
}

// ggufToken is the token that a key names; −1 if there is none.
func ggufToken(meta map[string]any, name string, vocabulary int) messages.Token {
	v, ok := meta["tokenizer.ggml."+name+"_token_id"]
	if n := number(v); ok && n >= 0 && n < float64(vocabulary) {
		return messages.Token(n)
	}
	return -1
}

var errNoList = errors.New("there is no such list")

func texts(meta map[string]any, key string) ([]string, error) {
	list, ok := meta[key].([]any)
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, errNoList)
	}
	out := make([]string, len(list))
	for i, v := range list {
		if out[i], ok = v.(string); !ok {
			return nil, fmt.Errorf("%s: entry %d is no text", key, i)
		}
	}
	return out, nil
}

func number(v any) float64 {
	switch x := v.(type) {
	case uint64:
		return float64(x)
	case int64:
		return float64(x)
	case float64:
		return x
	}
	return -1
}
