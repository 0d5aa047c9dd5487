package token

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kvactor/kvactor/messages"
)

// Tokenizer is a vocabulary and the rules to merge its tokens. It is read only
// once it is made.
type Tokenizer struct {
	BOS, EOS messages.Token // −1: none
	AddBOS   bool           // texts begin with BOS

	tokens   []string
	ids      map[string]messages.Token
	special  []string // texts that are one token, the longest first
	control  map[messages.Token]bool
	splits   []splitter // of byte-level BPE, each of what the ones before gave
	pieces   bool       // SentencePiece: spaces are ▁, no splits
	prefix   bool       // with pieces: a space goes before the text
	composed bool       // the text must be in Unicode's form C
	ranks    map[[2]messages.Token]merge
	scores   []float32 // with pieces, in place of ranks
}

// merge is what two neighbouring tokens become; the lowest order goes first.
type merge struct {
	id    messages.Token
	order float32
}

// space is how SentencePiece writes a space.
const space = "▁"

// Len is the size of the vocabulary.
func (t *Tokenizer) Len() int { return len(t.tokens) }

// ID is the token of a text of the vocabulary.
func (t *Tokenizer) ID(text string) (messages.Token, bool) {
	id, ok := t.ids[text]
	return id, ok
}

// Name is how the vocabulary writes a token, control tokens included; "" if there is none.
func (t *Tokenizer) Name(id messages.Token) string {
	if id < 0 || int(id) >= len(t.tokens) {
		return ""
	}
	return t.tokens[id]
}

// setTokens takes a vocabulary; special texts are cut out before anything else.
func (t *Tokenizer) setTokens(tokens []string, special, control map[messages.Token]bool) {
	t.tokens, t.control, t.ids = tokens, control, make(map[string]messages.Token, len(tokens))
	for i, s := range tokens {
		if _, ok := t.ids[s]; !ok {
			t.ids[s] = messages.Token(i)
		}
	}
	for id := range special {
		if tokens[id] != "" {
			t.special = append(t.special, tokens[id])
		}
	}
	sort.Slice(t.special, func(i, j int) bool {
		a, b := t.special[i], t.special[j]
		return len(a) > len(b) || len(a) == len(b) && a < b
	})
}

// setMerges takes merges in the order of their ranks.
func (t *Tokenizer) setMerges(pairs [][2]string) error {
	t.ranks = make(map[[2]messages.Token]merge, len(pairs))
	for rank, p := range pairs {
		a, okA := t.ids[p[0]]
		b, okB := t.ids[p[1]]
		id, ok := t.ids[p[0]+p[1]]
		if !okA || !okB || !ok {
			return fmt.Errorf("merge %d, %q %q, is not of the vocabulary", rank, p[0], p[1])
		}
		if _, there := t.ranks[[2]messages.Token{a, b}]; !there {
			t.ranks[[2]messages.Token{a, b}] = merge{id, float32(rank)}
		}
	}
	return nil
}

// Encode gives the tokens of a text. Special texts in it, such as <|im_end|>, are
// their tokens.
func (t *Tokenizer) Encode(text string) ([]messages.Token, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the text is not UTF-8")
	}
	if t.composed {
		if at := strings.IndexFunc(text, decomposed); at >= 0 {
			return nil,
				fmt.Errorf("normalizer: NFC of a text with combining marks is not supported, byte %d", at)
		}
	}
	var out []messages.Token
	if t.AddBOS && t.BOS >= 0 {
		out = append(out, t.BOS)
	}
	first := true
	for text != "" {
		at, found := len(text), ""
		for _, s := range t.special {
			if i := strings.Index(text[:min(len(text), at+len(s))], s); i >= 0 && i < at {
				at, found = i, s
			}
		}
		if at > 0 {
			ids, err := t.plain(text[:at], first)
			if err != nil {
				return nil, err
			}
			out = append(out, ids...)
		}
		if found != "" {
			out = append(out, t.ids[found])
		}
		text, first = text[at+len(found):], false
	}
	return out, nil
}

// decomposed tells characters that Unicode's form C might put together.
func decomposed(r rune) bool {
	return unicode.Is(unicode.M, r) || r >= 0x1100 && r < 0x1200
}

// plain encodes a text without special texts in it.
func (t *Tokenizer) plain(text string, first bool) ([]messages.Token, error) {
	if t.pieces {
		text = strings.ReplaceAll(text, " ", space)
		if t.prefix && first {
			text = space + text
		}
		return t.mergePairs(t.characters(text))
	}
	words := []string{text}
	for _, s := range t.splits {
		var finer []string
		for _, w := range words {
			finer = append(finer, s.split(w)...)
		}
		words = finer
	}
	var out []messages.Token
	for _, w := range words {
		symbols := make([]messages.Token, 0, len(w))
		for _, b := range []byte(w) {
			id, ok := t.ids[byteText[b]]
			if !ok {
				return nil, fmt.Errorf("byte %#x has no token", b)
			}
			symbols = append(symbols, id)
		}
		ids, err := t.mergePairs(symbols, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, ids...)
	}
	return out, nil
}

// characters are the tokens of the characters of a text, of their bytes where
// the vocabulary has no such character.
func (t *Tokenizer) characters(text string) ([]messages.Token, error) {
	var out []messages.Token
	for _, r := range text {
		if id, ok := t.ids[string(r)]; ok {
			out = append(out, id)
			continue
		}
		for _, b := range []byte(string(r)) {
			id, ok := t.ids[fmt.Sprintf("<0x%02X>", b)]
			if !ok {
				return nil, fmt.Errorf("%q has no token", r)
			}
			out = append(out, id)
		}
	}
	return out, nil
}

// find is what two tokens become.
func (t *Tokenizer) find(a, b messages.Token) (merge, bool) {
	if t.scores == nil {
		m, ok := t.ranks[[2]messages.Token{a, b}]
		return m, ok
	}
	id, ok := t.ids[t.tokens[a]+t.tokens[b]]
	if !ok {
		return merge{}, false
	}
	return merge{id, -t.scores[id]}, true
}

// Append adds the bytes of a token to a text. Control tokens have none.
func (t *Tokenizer) Append(to []byte, id messages.Token) []byte {
	if id < 0 || int(id) >= len(t.tokens) || t.control[id] {
		return to
	}
	s := t.tokens[id]
	if t.pieces {
		var b byte
		if n, err := fmt.Sscanf(s, "<0x%02X>", &b); err == nil && n == 1 && len(s) == 6 {
			return append(to, b)
		}
		return append(to, strings.ReplaceAll(s, space, " ")...)
	}
	for _, r := range s {
		b, ok := textByte[r]
		if !ok {
			return append(to, s...) // an added token, written as it is
		}
		to = append(to, b)
	}
	return to
}

// Decode is the text of tokens.
func (t *Tokenizer) Decode(ids []messages.Token) string {
	var out []byte
	for _, id := range ids {
		out = t.Append(out, id)
	}
	if t.pieces && t.prefix && len(out) > 0 && out[0] == ' ' {
		out = out[1:]
	}
	return string(out)
}

// byteText is how byte-level BPE writes a byte: printable ones of Latin-1 as they
// are, the others as characters from 256 on.
var byteText, textByte = func() (to [256]string, from map[rune]byte) {
	from = map[rune]byte{}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		to[b], from[r] = string(r), byte(b)
	}
	return to, from
}()
