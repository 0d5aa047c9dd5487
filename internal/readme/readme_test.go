package readme

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// block is a fenced block of a page.
type block struct {
	page, language string
	lines          []string
}

// pages are the files that this package holds.
func pages(t *testing.T) []string {
	list := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range found {
			page, err := filepath.Rel(root, name)
			require.NoError(t, err)
			list = append(list, page)
		}
	}
	require.Greater(t, len(list), 8)
	return list
}

// read splits a page into its blocks and the text between them.
func read(t *testing.T, page string) (text []string, blocks []block) {
	file, err := os.Open(filepath.Join(root, page))
	require.NoError(t, err)
	defer file.Close()
	var open *block
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		line := scanner.Text()
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{page: page, language: language}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		default:
			text = append(text, line)
		}
	}
	require.NoError(t, scanner.Err())
	require.Nil(t, open, "%s: a block has no end", page)
	return text, blocks
}

func blocksOf(t *testing.T, language string) []block {
	var list []block
	for _, page := range pages(t) {
		_, blocks := read(t, page)
		for _, b := range blocks {
			if b.language == language {
				list = append(list, b)
			}
		}
	}
	require.NotEmpty(t, list)
	return list
}

// trimmed are the lines without indentation and without empty ones.
func trimmed(lines []string) string {
	var kept []string
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// program splits a block that is a whole program into its imports and the body
// of main; other blocks are all body.
func program(b block) (imports []string, body string) {
	if b.lines[0] != "package main" {
		return nil, trimmed(b.lines)
	}
	var inside []string
	in := ""
	for _, line := range b.lines {
		switch {
		case line == "import (" || line == "func main() {":
			in = line
		case line == ")" || line == "}":
			in = ""
		case in == "import (" && line != "":
			imports = append(imports, line)
		case in == "func main() {":
			inside = append(inside, line)
		}
	}
	return imports, trimmed(inside)
}

func TestGoBlocksArePartsOfTheExamples(t *testing.T) {
	var files []string
	for _, pattern := range []string{"example*_test.go", root + "/example*_test.go",
		root + "/pool/evict/example_test.go", root + "/examples/*/main.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	var source []byte
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		source = append(source, text...)
	}
	examples := trimmed(strings.Split(string(source), "\n"))
	for _, b := range blocksOf(t, "go") {
		imports, body := program(b)
		assert.NotEmpty(t, body)
		if !strings.Contains(examples, body) { // the examples are too long to be shown
			t.Errorf("%s: no example has these lines:\n%s", b.page, body)
		}
		for _, line := range imports {
			if !strings.Contains(examples, strings.TrimSpace(line)) {
				t.Errorf("%s: no example imports %s", b.page, line)
			}
		}
	}
}

// The README shows the program examples/minimal, all of it, and its output. The program
// fits on a screen.
func TestReadmeShowsTheMinimalProgram(t *testing.T) {
	source, err := os.ReadFile(root + "/examples/minimal/main.go")
	require.NoError(t, err)
	_, source, found := bytes.Cut(source, []byte("package main\n"))
	require.True(t, found)
	output, err := os.ReadFile(root + "/examples/minimal/output.txt")
	require.NoError(t, err)

	_, blocks := read(t, "README.md")
	var program, printed []string
	for _, b := range blocks {
		switch {
		case b.language == "go" && program == nil:
			program = b.lines
		case b.language == "text" && printed == nil:
			printed = b.lines
		}
	}
	assert.Equal(t, "package main\n"+string(source), strings.Join(program, "\n")+"\n")
	assert.Equal(t, string(output), strings.Join(printed, "\n")+"\n")
	assert.LessOrEqual(t, len(program), screenLines)
}

// screenLines is how many lines a screen shows.
const screenLines = 45

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	text := strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#")))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case strings.ContainsRune("`,.:;()[]'’?!/", r):
			return -1
		}
		return r
	}, text)
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		text, _ := read(t, page)
		for _, found := range link.FindAllStringSubmatch(strings.Join(text, "\n"), -1) {
			target, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if !assert.FileExists(t, filepath.Join(root, to), "%s links to %s", page, found[1]) ||
				heading == "" {
				continue
			}
			lines, _ := read(t, to)
			var anchors []string
			for _, line := range lines {
				if strings.HasPrefix(line, "#") {
					anchors = append(anchors, anchor(line))
				}
			}
			assert.Contains(t, anchors, heading, "%s links to %s", page, found[1])
		}
	}
}

var quoted = regexp.MustCompile("`([a-z]+(?:/[a-z_]+)*/[a-z_]+(?:\\.go)?)`")

// A path in quotes that begins with a folder of the repository exists.
func TestPathsExist(t *testing.T) {
	for _, page := range pages(t) {
		text, _ := read(t, page)
		for _, found := range quoted.FindAllStringSubmatch(strings.Join(text, "\n"), -1) {
			top, _, _ := strings.Cut(found[1], "/")
			if _, err := os.Stat(filepath.Join(root, top)); err != nil {
				continue // `testdata/scripts`, `math/rand`
			}
			_, err := os.Stat(filepath.Join(root, found[1]))
			assert.NoError(t, err, "%s names %s", page, found[1])
		}
	}
}
