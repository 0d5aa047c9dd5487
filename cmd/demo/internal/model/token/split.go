package token

import (
	"fmt"

	"github.com/dlclark/regexp2"
)

// The patterns of GGUF's tokenizer.ggml.pre, as llama.cpp has them.
const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	digitPattern  = `\p{N}`
)

// splitter cuts a text at the matches of a pattern; what is between them is left as it is.
type splitter struct{ *regexp2.Regexp }

func newSplitter(pattern string) (splitter, error) {
	p, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return splitter{}, fmt.Errorf("pattern %q is not supported: %w", pattern, err)
	}
	return splitter{p}, nil
}

// split cuts a text.
func (s splitter) split(text string) (out []string) {
	runes, at := []rune(text), 0
	m, err := s.FindRunesMatch(runes)
	for ; m != nil && err == nil; m, err = s.FindNextMatch(m) {
		if m.Index > at {
			out = append(out, string(runes[at:m.Index]))
		}
		if at = m.Index + m.Length; m.Length > 0 {
			out = append(out, m.String())
		}
	}
	if at < len(runes) {
		out = append(out, string(runes[at:]))
	}
	return out
}
