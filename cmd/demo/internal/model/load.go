package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
)

// Source is what a model is loaded from: its configuration, with Hugging Face's
// names, and its tensors, with theirs.
type Source struct {
	settings *settings
	tensors  weights.Set
	// Meta is the metadata of a GGUF file, for its tokenizer; nil for a folder.
	Meta map[string]any
	// Files are the files of the folder; nil for a GGUF file.
	Files fs.FS
}

// Load reads a model from a folder or a GGUF file.
func Load(path string) (*Model, *Source, error) {
	s, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Build()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, s, nil
}

// Open reads configuration and tensors. A folder has a config.json, or a
// fixture.json with the configuration inside, and one or more .safetensors files
// of weights, or is a folder with one GGUF file.
func Open(path string) (*Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return openGGUF(path)
	}
	s, err := OpenFiles(os.DirFS(path))
	if errors.Is(err, errNoConfig) {
		if files, _ := filepath.Glob(filepath.Join(path, "*.gguf")); len(files) == 1 {
			return openGGUF(files[0])
		}
		return nil, fmt.Errorf("%s has no config.json, no fixture.json and not one .gguf file", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

var errNoConfig = errors.New("no config.json and no fixture.json")

// OpenFiles reads the configuration and the tensors of a folder that is not a GGUF
// file, as Open.
func OpenFiles(files fs.FS) (*Source, error) {
	text, err := fs.ReadFile(files, "config.json")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = fixtureConfig(files)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoConfig
	}
	if err != nil {
		return nil, err
	}
	s := &Source{Files: files, tensors: weights.Set{}}
	if s.settings, err = parseSettings(text); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return s, s.readWeights()
}

// fixtureConfig is the config of a fixture.json.
func fixtureConfig(files fs.FS) ([]byte, error) {
	text, err := fs.ReadFile(files, "fixture.json")
	if err != nil {
		return nil, err
	}
	var f struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(withoutPython(text), &f); err != nil {
		return nil, err
	}
	return f.Config, nil
}

// readWeights reads all weight files of the folder: weights.safetensors,
// model.safetensors or its parts. What a fixture expects is none.
func (s *Source) readWeights() error {
	files, err := fs.Glob(s.Files, "*.safetensors")
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasPrefix(file, "expected") {
			continue
		}
		set, err := weights.ReadSafetensors(s.Files, file)
		if err != nil {
			return err
		}
		for name, t := range set {
			s.tensors[name] = t
		}
	}
	if len(s.tensors) == 0 {
		return errors.New("no .safetensors file of weights")
	}
	return nil
}

// builders make models by model_type.
var builders = map[string]func(*builder){
	"llama": buildLlama, "mistral": buildLlama, "qwen2": buildLlama, "qwen3": buildLlama,
	"gemma3_text": buildLlama, "gpt_oss": buildLlama,
	"deepseek_v3": buildDeepSeek,
	"bamba":       buildBamba, "qwen3_next": buildQwen3Next,
	"bloom": buildBloom, "gptj": buildGPTJ, "gpt_neox": buildGPTNeoX,
	"t5": buildT5, "bart": buildBART,
}

// Build makes the model. Everything that is missing or not supported is refused
// in one error.
func (s *Source) Build() (*Model, error) {
	kind := s.settings.text("model_type", "")
	build := builders[kind]
	if build == nil {
		s.settings.refuse("model_type", "%q is not supported", kind)
		return nil, s.settings.err()
	}
	b := &builder{settings: s.settings, tensors: s.tensors, m: &Model{Kind: kind}}
	build(b)
	if err := b.err(); err != nil {
		return nil, err
	}
	for _, t := range s.tensors {
		b.m.Parameters += t.Len()
	}
	return b.m, nil
}
