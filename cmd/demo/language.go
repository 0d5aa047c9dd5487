package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/builtin"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
)

// language is a model that reads and writes text.
type language struct {
	name  string
	model *model.Model
	words *token.Tokenizer
	form  token.Form
	files fs.FS // of its weights; nil: the file at path
	path  string
}

// modelHelp is the text of --model.
const modelHelp = "`model`: a GGUF file, or a folder with config.json, tokenizer.json and " +
	"weights; tiny is the model that comes with the program"

// tiny selects the built-in model.
const tiny = "tiny"

// openLanguage loads a model and its vocabulary. Without a path it takes SmolLM2 if
// that is where it is looked for, else the built-in model.
func openLanguage(path string) (*language, error) {
	if path == "" {
		found, err := model.SmolLM2.Find()
		if path = found; err != nil {
			path = tiny
		}
	}
	l, load := &language{name: modelName(path)}, func() (*model.Model, *model.Source,
		error) {
		return model.Load(path)
	}
	if path == tiny {
		l.name, load = builtin.Name, builtin.Load
	}
	m, source, err := load()
	if err != nil {
		return nil, err
	}
	if m.Encodes() {
		return nil, fmt.Errorf("%s: an encoder–decoder model does not chat", path)
	}
	if l.words, l.form, err = vocabulary(source); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if l.words.Len() > m.Vocab {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, the model %d", path, l.words.Len(),
			m.Vocab)
	}
	l.model, l.files, l.path = m, source.Files, path
	return l, nil
}

// modelName is the name of the model of a path.
func modelName(path string) string {
	name := filepath.Base(filepath.Clean(path))
	return strings.TrimSuffix(name, ".gguf")
}

// vocabulary reads tokenizer and chat form of a model.
func vocabulary(s *model.Source) (*token.Tokenizer, token.Form, error) {
	if s.Meta != nil {
		words, err := token.FromGGUF(s.Meta)
		if err != nil {
			return nil, token.Form{}, err
		}
		template, _ := s.Meta["tokenizer.chat_template"].(string)
		form, err := token.FormOf(template)
		return words, form, err
	}
	text, err := fs.ReadFile(s.Files, "tokenizer.json")
	if err != nil {
		return nil, token.Form{}, err
	}
	words, err := token.FromJSON(text)
	if err != nil {
		return nil, token.Form{}, err
	}
	config, err := fs.ReadFile(s.Files, "tokenizer_config.json")
	template, errTemplate := fs.ReadFile(s.Files, "chat_template.jinja")
	if err != nil && errTemplate != nil {
		return nil, token.Form{}, errors.Join(err, errTemplate)
	}
	form, err := token.FormOf(string(config) + string(template))
	return words, form, err
}
