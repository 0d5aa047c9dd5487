package token

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// bytesVocabulary is a byte-level vocabulary: all bytes, then merged tokens.
func bytesVocabulary(merges ...[2]string) (tokens []any, lines []any) {
	for b := range 256 {
		tokens = append(tokens, byteText[b])
	}
	for _, m := range merges {
		tokens, lines = append(tokens, m[0]+m[1]), append(lines, m[0]+" "+m[1])
	}
	return tokens, lines
}

// words makes a byte-level tokenizer with a few merges and one special token.
func words(t *testing.T, pre string) *Tokenizer {
	t.Helper()
	tokens, merges := bytesVocabulary([2]string{"h", "e"}, [2]string{"l", "l"}, [2]string{"he", "ll"},
		[2]string{"hell", "o"}, [2]string{"Ġ", "hello"}, [2]string{"1", "2"})
	tokens = append(tokens, "<|end|>")
	kinds := make([]any, len(tokens))
	for i := range kinds {
		kinds[i] = uint64(1)
	}
	kinds[len(kinds)-1] = uint64(ggufControl)
	tokenizer, err := FromGGUF(map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
		"tokenizer.ggml.merges":     merges,
		"tokenizer.ggml.token_type": kinds, "tokenizer.ggml.eos_token_id": uint64(len(tokens) - 1),
	})
	require.NoError(t, err)
	return tokenizer
}

func pieces(t *testing.T, tokenizer *Tokenizer, text string) []string {
	t.Helper()
	ids, err := tokenizer.Encode(text)
	require.NoError(t, err)
	var out []string
	for _, id := range ids {
		out = append(out, tokenizer.tokens[id])
	}
	return out
}

func TestBytesAreMergedByRank(t *testing.T) {
	w := words(t, "gpt-2")
	assert.Equal(t, []string{"hello", "Ġhello"}, pieces(t, w, "hello hello"))
	assert.Equal(t, []string{"Ġ", "Ġhello"}, pieces(t, w, "  hello"),
		"the last of two spaces is the word's")
	assert.Equal(t, []string{"hell", "12"}, pieces(t, w, "hell12"))
	assert.Equal(t, []string{"hell", "1", "2"}, pieces(t, words(t, "smollm"), "hell12"),
		"digits stand alone")
	assert.Equal(t, []string{"h", "<|end|>", "h"}, pieces(t, w, "h<|end|>h"))
	for _, text := range []string{"", "naïve 你好 🙂🏽 \x00\r\n\t x", "hello  hello\n\n  hello"} {
		ids, err := w.Encode(text)
		require.NoError(t, err)
		assert.Equal(t, text, w.Decode(ids))
	}
	_, err := w.Encode("\xff")
	assert.Error(t, err)
	assert.Equal(t, messages.Token(262), w.EOS)
}

func TestSpaces(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"a b", []string{"a", " b"}},
		{"a  b", []string{"a", " ", " b"}},
		{"a\u00a0\u00a0b", []string{"a", "\u00a0", "\u00a0", "b"}},
		{"a \n b", []string{"a", " \n", " b"}},
		{"a  ", []string{"a", "  "}},
		{"it's 12,3", []string{"it", "'s", " 12", ",", "3"}},
	} {
		s, err := newSplitter(gpt2Pattern)
		require.NoError(t, err)
		assert.Equal(t, c.want, s.split(c.text), "%q", c.text)
	}
	for _, p := range []string{llama3Pattern, qwen2Pattern, digitPattern} {
		_, err := newSplitter(p)
		assert.NoError(t, err)
	}
	_, err := newSplitter(`a(b`)
	assert.ErrorContains(t, err, "is not supported")
}

// pieceMeta is a SentencePiece vocabulary with scores.
func pieceMeta() map[string]any {
	tokens, scores := []any{"<unk>", "<s>", "</s>"}, []any{0.0, 0.0, 0.0}
	for b := range 256 {
		tokens, scores = append(tokens, "<0x"+string("0123456789ABCDEF"[b>>4])+
			string("0123456789ABCDEF"[b&15])+">"), append(scores, 0.0)
	}
	for i, s := range []string{"▁", "a", "b", "ab", "▁ab", "ba"} {
		tokens, scores = append(tokens, s), append(scores, -float64(i))
	}
	return map[string]any{"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
		"tokenizer.ggml.scores": scores, "tokenizer.ggml.bos_token_id": uint64(1),
		"tokenizer.ggml.eos_token_id": uint64(2)}
}

func TestPiecesAreMergedByScore(t *testing.T) {
	p, err := FromGGUF(pieceMeta())
	require.NoError(t, err)
	assert.Equal(t, []string{"<s>", "▁ab", "▁ab"}, pieces(t, p, "ab ab"))
	assert.Equal(t, []string{"<s>", "▁", "b", "ab"}, pieces(t, p, "bab"), "ab has the better score")
	assert.Equal(t, []string{"<s>", "▁", "<0xC3>", "<0xA9>"}, pieces(t, p, "é"))
	ids, err := p.Encode("ab é b")
	require.NoError(t, err)
	assert.Equal(t, "ab é b", p.Decode(ids[1:]))
}

func TestJSON(t *testing.T) {
	vocab := map[string]int{}
	for b := range 256 {
		vocab[byteText[b]] = b
	}
	vocab["he"], vocab["Ġhe"] = 256, 257
	make := func(change map[string]any) ([]byte, error) {
		doc := map[string]any{
			"model": map[string]any{"type": "BPE", "vocab": vocab,
				"merges": []any{"h e", []string{"Ġ", "he"}}},
			"added_tokens": []any{map[string]any{"id": 258, "content": "<s>", "special": true}},
			"pre_tokenizer": map[string]any{"type": "Sequence",
				"pretokenizers": []any{map[string]any{"type": "Digits", "individual_digits": true},
					map[string]any{"type": "ByteLevel"}}},
			"post_processor": map[string]any{"type": "TemplateProcessing", "single": []any{
				map[string]any{"SpecialToken": map[string]any{"id": "<s>"}},
				map[string]any{"Sequence": map[string]any{"id": "A"}}}},
		}
		for k, v := range change {
			doc[k] = v
		}
		return json.Marshal(doc)
	}
	text, err := make(nil)
	require.NoError(t, err)
	j, err := FromJSON(text)
	require.NoError(t, err)
	assert.Equal(t, []string{"<s>", "he", "Ġhe", "1", "2"}, pieces(t, j, "he he12"))
	for want, change := range map[string]map[string]any{
		`model.type: "Unigram" is not supported`: {"model": map[string]any{"type": "Unigram"}},
		`normalizer.type: "Lowercase" is not supported`: {
			"normalizer": map[string]any{"type": "Lowercase"}},
		`pre_tokenizer.type: "Whitespace" is not supported`: {
			"pre_tokenizer": map[string]any{"type": "Whitespace"}},
		`pre_tokenizer.add_prefix_space: true is not suppor`: {
			"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": true},
		},
	} {
		text, err := make(change)
		require.NoError(t, err)
		_, err = FromJSON(text)
		assert.ErrorContains(t, err, want)
	}
	text, err = make(map[string]any{"normalizer": map[string]any{"type": "NFC"}})
	require.NoError(t, err)
	j, err = FromJSON(text)
	require.NoError(t, err)
	_, err = j.Encode("e\u0301")
	assert.ErrorContains(t, err, "normalizer: NFC")
}

// FuzzJSON: a tokenizer.json makes a tokenizer that encodes and decodes, or is refused.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"added_tokens":[{"id":3,"content":"<s>","special":true}]}`), "abba")
	f.Add([]byte(
		`{"model":{"type":"BPE","vocab":{"Ġ":0,"h":1,"Ġh":2},"merges":[["Ġ","h"]],"byte_fallback":true},"normalizer":{"type":"Sequence","normalizers":[`+
			`{"type":"Prepend","prepend":"Ġ"}]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true}}`), " h<s>h")
	f.Fuzz(func(t *testing.T, text []byte, prompt string) {
		tokenizer, err := FromJSON(text)
		if err != nil {
			return
		}
		tokens, err := tokenizer.Encode(prompt)
		if err != nil {
			return
		}
		for _, token := range tokens {
			require.GreaterOrEqual(t, int(token), 0)
			require.Less(t, int(token), tokenizer.Len())
		}
		tokenizer.Decode(tokens)
	})
}

func TestUnknownVocabulariesAreRefused(t *testing.T) {
	for want, change := range map[string]map[string]any{
		`tokenizer.ggml.model: "bert" is not supported`: {"tokenizer.ggml.model": "bert"},
		"tokenizer.ggml.tokens":                         {"tokenizer.ggml.tokens": nil},
		"tokenizer.ggml.scores: 1 for":                  {"tokenizer.ggml.scores": []any{1.0}},
		`tokenizer.ggml.pre: "xyz" is not supported`: {"tokenizer.ggml.model": "gpt2",
			"tokenizer.ggml.pre": "xyz"},
	} {
		meta := pieceMeta()
		for k, v := range change {
			meta[k] = v
		}
		_, err := FromGGUF(meta)
		assert.ErrorContains(t, err, want)
	}
}

func TestChats(t *testing.T) {
	chat := []Message{{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello"}, {"user", "Bye"}}
	for template, want := range map[string]string{
		"…<|im_start|>…":        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
		"…<|start_header_id|>…": "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"…<start_of_turn>…":     "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
		"…[INST]…":              "[INST] Be brief.\n\nHi [/INST] Hello</s>[INST] Bye [/INST]",
	} {
		f, err := FormOf(template)
		require.NoError(t, err)
		assert.Equal(t, want, f.Write(chat), f.String())
	}
	f, err := FormOf(`{% if %}{{ '<|im_start|>system\nYou are Q.<|im_end|>\n' }}{% endif %}`)
	require.NoError(t, err)
	assert.Equal(t, "<|im_start|>system\nYou are Q.<|im_end|>\n<|im_start|>assistant\n", f.Write(nil))
	_, err = FormOf("{{ messages }}")
	assert.ErrorContains(t, err, "chat_template")
}
