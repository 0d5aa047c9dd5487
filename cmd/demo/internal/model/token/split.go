package token

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// splitter cuts a text at the matches of a pattern: a match is a piece, and so is
// what lies between two.
type splitter struct {
	pattern *regexp.Regexp
	spaces  int // group of the spaces that leave their last one to a word; 0: none
}

// The patterns of GGUF's tokenizer.ggml.pre, as llama.cpp has them.
const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	digitPattern  = `\p{N}`
)

// newSplitter translates a pattern of the tokenizers into one of package regexp,
// which has no lookahead and whose \s is ASCII. The one lookahead that tokenizers
// use, \s+(?!\S), leaves the last of several spaces to the word behind them:
// that is done after the match.
func newSplitter(pattern string) (splitter, error) {
	text := strings.ReplaceAll(pattern, `\s+(?!\S)|\s+`, `(\s+)`)
	text = strings.ReplaceAll(text, `\s+(?!\S)`, `(\s+)`)
	p, err := regexp.Compile(unicodeSpaces(text))
	if err != nil {
		return splitter{}, fmt.Errorf("pattern %q is not supported: %w", pattern, err)
	}
	s := splitter{pattern: p}
	if text != pattern {
		if p.NumSubexp() != 1 {
			return splitter{}, fmt.Errorf("pattern %q is not supported: it has groups", pattern)
		}
		s.spaces = 1
	}
	return s, nil
}

// unicodeSpaces makes \s Unicode's, inside and outside of classes.
func unicodeSpaces(pattern string) string {
	const spaces = `\s\x0b\x{85}\p{Z}`
	var out strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			i++
			switch {
			case pattern[i] == 's' && class:
				out.WriteString(spaces)
			case pattern[i] == 's':
				out.WriteString("[" + spaces + "]")
			case pattern[i] == 'S' && !class:
				out.WriteString("[^" + spaces + "]")
			default:
				out.WriteByte(c)
				out.WriteByte(pattern[i])
			}
			continue
		case c == '[':
			class = true
		case c == ']':
			class = false
		}
		out.WriteByte(c)
	}
	return out.String()
}

func (s splitter) split(text string) []string {
	var out []string
	for text != "" {
		m := s.pattern.FindStringSubmatchIndex(text)
		if m == nil || m[1] == m[0] {
			return append(out, text)
		}
		from, to := m[0], m[1]
		if s.spaces > 0 && m[2*s.spaces] >= 0 && to < len(text) {
			// Another character follows, which is no space: the last space is its own,
			// or the next word's.
			_, size := utf8.DecodeLastRuneInString(text[from:to])
			if next, _ := utf8.DecodeRuneInString(text[to:]); size < to-from && !unicode.IsSpace(next) {
				to -= size
			}
		}
		if from > 0 {
			out = append(out, text[:from])
		}
		out = append(out, text[from:to])
		text = text[to:]
	}
	return out
}
