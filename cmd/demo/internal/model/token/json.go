package token

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// maxVocabulary bounds the ids of a tokenizer.json.
const maxVocabulary = 1 << 22

// file is what is read of a tokenizer.json.
type file struct {
	AddedTokens []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer    *step `json:"normalizer"`
	PreTokenizer  *step `json:"pre_tokenizer"`
	PostProcessor *step `json:"post_processor"`
	Model         struct {
		Type         string            `json:"type"`
		Vocab        map[string]int    `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
		ByteFallback bool              `json:"byte_fallback"`
	} `json:"model"`
}

// step is one step of a pipeline; which fields count depends on its type.
type step struct {
	Type            string  `json:"type"`
	Steps           []*step `json:"pretokenizers"`
	Normalizers     []*step `json:"normalizers"`
	Processors      []*step `json:"processors"`
	AddPrefixSpace  bool    `json:"add_prefix_space"`
	UseRegex        *bool   `json:"use_regex"`
	IndividualDigit bool    `json:"individual_digits"`
	Behavior        string  `json:"behavior"`
	Invert          bool    `json:"invert"`
	PrependScheme   string  `json:"prepend_scheme"`
	Prepend         string  `json:"prepend"`
	Content         string  `json:"content"`
	Pattern         struct {
		Regex  string `json:"Regex"`
		String string `json:"String"`
	} `json:"pattern"`
	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
	} `json:"single"`
}

// FromJSON makes the tokenizer of a tokenizer.json.
func FromJSON(text []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Model.Type != "BPE" {
		return nil, fmt.Errorf("model.type: %q is not supported, only BPE", f.Model.Type)
	}
	t := &Tokenizer{BOS: -1, EOS: -1, pieces: f.Model.ByteFallback}
	if err := t.vocabulary(&f); err != nil {
		return nil, err
	}
	pairs := make([][2]string, len(f.Model.Merges))
	for i, m := range f.Model.Merges {
		var line string
		if json.Unmarshal(m, &pairs[i]) == nil {
			continue
		}
		if err := json.Unmarshal(m, &line); err != nil {
			return nil, fmt.Errorf("model.merges: %w", err)
		}
		pairs[i] = cutMerges([]string{line})[0]
	}
	return t, errors.Join(t.setMerges(pairs), t.normalize(f.Normalizer), t.preTokenize(f.PreTokenizer),
		t.postProcess(f.PostProcessor))
}

// vocabulary reads tokens by id, added ones included.
func (t *Tokenizer) vocabulary(f *file) error {
	n := 0
	for _, id := range f.Model.Vocab {
		n = max(n, id+1)
	}
	for _, a := range f.AddedTokens {
		n = max(n, a.ID+1)
	}
	if n > maxVocabulary {
		return fmt.Errorf("model.vocab: an id of %d", n-1)
	}
	tokens := make([]string, n)
	special, control := map[messages.Token]bool{}, map[messages.Token]bool{}
	for s, id := range f.Model.Vocab {
		if id < 0 {
			return fmt.Errorf("model.vocab: an id of %d", id)
		}
		tokens[id] = s
	}
	for _, a := range f.AddedTokens {
		if a.ID < 0 {
			return fmt.Errorf("added_tokens: an id of %d", a.ID)
		}
		tokens[a.ID], special[messages.Token(a.ID)] = a.Content, true
		if a.Special {
			control[messages.Token(a.ID)] = true
		}
	}
	t.setTokens(tokens, special, control)
	return nil
}

// normalize reads what is done to the text before all else.
func (t *Tokenizer) normalize(s *step) error {
	if s == nil {
		return nil
	}
	switch {
	case s.Type == "Sequence":
		var err error
		for _, n := range s.Normalizers {
			err = errors.Join(err, t.normalize(n))
		}
		return err
	case s.Type == "NFC":
		t.composed = true
	case s.Type == "Prepend" && s.Prepend == space && t.pieces:
		t.prefix = true
	case s.Type == "Replace" && s.Pattern.String == " " && s.Content == space && t.pieces:
	default:
		return fmt.Errorf("normalizer.type: %q is not supported", s.Type)
	}
	return nil
}

// preTokenize reads how the text is cut.
func (t *Tokenizer) preTokenize(s *step) error {
	if s == nil {
		return nil
	}
	var pattern string
	switch s.Type {
	case "Sequence":
		var err error
		for _, n := range s.Steps {
			err = errors.Join(err, t.preTokenize(n))
		}
		return err
	case "ByteLevel":
		if s.AddPrefixSpace {
			return errors.New("pre_tokenizer.add_prefix_space: true is not supported")
		}
		if s.UseRegex != nil && !*s.UseRegex {
			return nil
		}
		pattern = gpt2Pattern
	case "Digits":
		if pattern = `\p{N}+`; s.IndividualDigit {
			pattern = digitPattern
		}
	case "Split":
		pattern = s.Pattern.Regex
		if pattern == "" && s.Pattern.String == " " && t.pieces {
			return nil // Gemma cuts at spaces, which are ▁ by then: never
		}
		if s.Behavior != "Isolated" && !(s.Behavior == "Removed" && s.Invert) || pattern == "" {
			return fmt.Errorf("pre_tokenizer.behavior: %q is not supported", s.Behavior)
		}
	case "Metaspace":
		if !t.pieces {
			return errors.New("pre_tokenizer.type: Metaspace without byte_fallback is not supported")
		}
		t.prefix = s.PrependScheme == "always" || s.PrependScheme == "first"
		return nil
	default:
		return fmt.Errorf("pre_tokenizer.type: %q is not supported", s.Type)
	}
	split, err := newSplitter(pattern)
	t.splits = append(t.splits, split)
	return err
}

// postProcess finds the token that texts begin with.
func (t *Tokenizer) postProcess(s *step) error {
	if s == nil {
		return nil
	}
	for _, p := range s.Processors {
		if err := t.postProcess(p); err != nil {
			return err
		}
	}
	if len(s.Single) > 0 && s.Single[0].SpecialToken != nil {
		id, ok := t.ids[s.Single[0].SpecialToken.ID]
		if !ok {
			return fmt.Errorf("post_processor.single: %q is no token", s.Single[0].SpecialToken.ID)
		}
		t.BOS, t.AddBOS = id, true
	}
	return nil
}
