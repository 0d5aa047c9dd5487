package readme

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what is generated into docs/api.md")

const module = "github.com/kvactor/kvactor"

// library reads packages of the module for their documentation.
type library struct {
	t        *testing.T
	files    *token.FileSet
	packages map[string]*doc.Package
}

// of reads a package, by its folder.
func (l *library) of(folder string) *doc.Package {
	if p := l.packages[folder]; p != nil {
		return p
	}
	names, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
	require.NoError(l.t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(l.files, name, nil, parser.ParseComments)
		require.NoError(l.t, err)
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(l.files, files, module+"/"+folder)
	require.NoError(l.t, err)
	l.packages[folder] = p
	return p
}

// source draws a declaration with its comments. A declaration's own comment is text beside it.
func (l *library) source(node ast.Node) string {
	var b bytes.Buffer
	require.NoError(l.t, format.Node(&b, l.files, node))
	return b.String()
}

// folderOf is where a package that a file of another one imports lies.
func folderOf(p *doc.Package, name string) string {
	for _, path := range p.Imports {
		if folder, ok := strings.CutPrefix(path, module+"/"); ok && filepath.Base(folder) == name {
			return folder
		}
	}
	return ""
}

// defined follows an alias to the type that it names, and the package of that.
func (l *library) defined(p *doc.Package, t *doc.Type) (*doc.Package, *doc.Type) {
	for _, spec := range t.Decl.Specs {
		s := spec.(*ast.TypeSpec)
		of, ok := s.Type.(*ast.SelectorExpr)
		if s.Name.Name != t.Name || !ok || s.Assign == token.NoPos {
			continue
		}
		other := l.of(folderOf(p, of.X.(*ast.Ident).Name))
		i := slices.IndexFunc(other.Types, func(t *doc.Type) bool { return t.Name == of.Sel.Name })
		require.GreaterOrEqual(l.t, i, 0, t.Name)
		return l.defined(other, other.Types[i])
	}
	return p, t
}

// write writes a type: what it is, what it has, what it does.
func (l *library) write(b *strings.Builder, root *doc.Package, t *doc.Type) {
	p, is := l.defined(root, t)
	fmt.Fprintf(b, "## %s\n\n", t.Name)
	if p != root {
		folder := strings.TrimPrefix(p.ImportPath, module+"/")
		fmt.Fprintf(b, "`%s.%s`, of package `%s`.\n\n", p.Name, is.Name, folder)
	}
	b.Write(p.Markdown(is.Doc))
	decl := *is.Decl
	decl.Doc = nil
	fmt.Fprintf(b, "\n```golang\n%s\n```\n", l.source(&decl))
	for _, c := range is.Consts {
		if p == root || c.Doc == "" {
			fmt.Fprintf(b, "\n```golang\n%s\n```\n", l.source(c.Decl))
		}
	}
	for _, f := range slices.Concat(is.Funcs, is.Methods) {
		l.function(b, p, f)
	}
	b.WriteString("\n")
}

// function writes a function or a method.
func (l *library) function(b *strings.Builder, p *doc.Package, f *doc.Func) {
	decl := *f.Decl
	decl.Doc, decl.Body = nil, nil
	fmt.Fprintf(b, "\n```golang\n%s\n```\n\n%s", l.source(&decl), p.Markdown(f.Doc))
}

// api is the page.
func api(t *testing.T) string {
	l := &library{t, token.NewFileSet(), map[string]*doc.Package{}}
	root := l.of("")
	var b strings.Builder
	b.WriteString(`# Package kvactor, with everything that it names

Written by ` + "`go test ./internal/readme -run API -update`" + ` from the source. Most records are
aliases of those of packages below ([ADR 17](adr/0017-aliases.md) says why). Here each is with its
fields and methods. [embedding.md](embedding.md) says how they are used.

`)
	var names []string
	for _, of := range root.Types {
		names = append(names, fmt.Sprintf("[%s](#%s)", of.Name, strings.ToLower(of.Name)))
	}
	b.WriteString(strings.Join(names, ",\n"))
	b.WriteString(",\n[options](#options), [functions](#functions), [constants](#constants)\n\n")
	for _, of := range root.Types {
		l.write(&b, root, of)
	}
	b.WriteString("## Options\n\nFunctions of package `actors`, for `Open`.\n")
	options := l.of("actors")
	for _, of := range options.Types {
		for _, f := range of.Funcs {
			if of.Name == "Option" {
				l.function(&b, options, f)
			}
		}
	}
	b.WriteString("\n## Functions\n")
	for _, f := range root.Funcs {
		l.function(&b, root, f)
	}
	b.WriteString("\n## Constants\n")
	for _, c := range root.Consts {
		fmt.Fprintf(&b, "\n```golang\n%s\n```\n", l.source(c.Decl))
	}
	return b.String()
}

// The page of the API has every exported name of the root package, with the fields of each
// struct, wherever that is defined.
func TestAPI(t *testing.T) {
	const page = "../../docs/api.md"
	want := api(t)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range strings.Split(want, "\n") {
		require.Less(t, i, len(lines), "docs/api.md is too short: run the test with -update")
		require.Equal(t, line, lines[i], "docs/api.md, line %d: run the test with -update", i+1)
	}
	assert.Len(t, text, len(want), "docs/api.md is too long: run the test with -update")
	for _, field := range []string{"KVHeads", "MaxTokens", "ChunkTokens", "ReusedTokens"} {
		assert.Regexp(t, `(?m)^\s+`+field+` `, string(text), "fields of aliases are there")
	}
}
