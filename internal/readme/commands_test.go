package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var inline = regexp.MustCompile("`(go (?:run|test) [^`]+)`")

// commands are the go commands of a page, in blocks of sh and in its text.
func commands(t *testing.T, page string) []string {
	var list []string
	text, blocks := read(t, page)
	for _, b := range blocks {
		if b.language != "sh" {
			continue
		}
		for _, line := range b.lines {
			line, _, _ = strings.Cut(line, "#")
			list = append(list, strings.TrimSpace(line))
		}
	}
	for _, found := range inline.FindAllStringSubmatch(strings.Join(text, "\n"), -1) {
		list = append(list, found[1])
	}
	return list
}

// A command names packages and files that exist, and flags that demo has.
func TestCommandsNameWhatThereIs(t *testing.T) {
	help := map[string]string{}
	seen := 0
	for _, page := range pages(t) {
		for _, command := range commands(t, page) {
			words := strings.Fields(command)
			if len(words) == 0 || words[0] != "go" {
				continue // of Python, in docs/vllm.md
			}
			seen++
			for _, word := range words[2:] {
				if strings.Contains(word, "/") && !strings.HasPrefix(word, "-") {
					path := filepath.Join(root, strings.TrimSuffix(word, "..."))
					_, err := os.Stat(path)
					assert.NoError(t, err, "%s: %s", page, command)
				}
			}
			if len(words) > 2 && words[1] == "run" && words[2] == "./cmd/demo" {
				checkFlags(t, help, command, words[3:])
			}
		}
	}
	assert.Greater(t, seen, 3)
}

// checkFlags looks flags up in the help of their subcommand.
func checkFlags(t *testing.T, help map[string]string, command string, words []string) {
	sub := ""
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		sub = words[0]
	}
	for _, word := range words {
		if !strings.HasPrefix(word, "--") {
			continue
		}
		flag, _, _ := strings.Cut(word, "=")
		assert.Contains(t, helpOf(t, help, sub), flag, command)
	}
}

func helpOf(t *testing.T, known map[string]string, sub string) string {
	if text, ok := known[sub]; ok {
		return text
	}
	args := []string{"run", "./cmd/demo"}
	if sub != "" {
		args = append(args, sub)
	}
	c := exec.CommandContext(t.Context(), "go", append(args, "--help")...)
	c.Dir = root
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	known[sub] = string(out)
	return known[sub]
}
