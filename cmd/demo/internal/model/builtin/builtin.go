// Package builtin has a language model that comes with the program: a Gemma 3 of half
// a million parameters, with windows of 64 tokens and full attention in turn, so that
// its cache has two pools. It was trained on chats that corpus.py in folder train makes
// up. It remembers what it was told in a chat and knows a few dozen answers; to
// anything else it answers nonsense.
//
// The folder train has all that the files were made of. It is not part of the build.
package builtin

import (
	"embed"
	"fmt"

	"github.com/kvactor/kvactor/cmd/demo/internal/model"
)

// Name is the name of the model.
const Name = "kvactor-tiny"

//go:embed config.json tokenizer.json tokenizer_config.json model.safetensors
var files embed.FS

// Load makes the model.
func Load() (*model.Model, *model.Source, error) {
	s, err := model.OpenFiles(files)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Build()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", Name, err)
	}
	return m, s, nil
}
