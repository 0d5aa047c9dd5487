package archtest

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

// source is one parsed file.
type source struct {
	name   string // path from the module's root
	dir    string
	module string
	file   *ast.File
	set    *token.FileSet
	report func(at token.Pos, format string, args ...any)
}

// Check reads all Go files of a module and returns a sentence for everything
// that does not fit the picture, sorted.
func Check(root fs.FS, module string) ([]string, error) {
	var problems []string
	documented := map[string]bool{}
	methods, names := newMethodSets(), exported{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(name):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		s, err := parse(name, module, text, &problems)
		if err != nil {
			return err
		}
		s.check()
		if !s.isTest() {
			documented[s.dir] = documented[s.dir] || s.file.Doc != nil
			methods.add(s)
			names.add(s)
		}
		return nil
	})
	for dir, ok := range documented {
		if !ok {
			problems = append(problems, fmt.Sprintf("%s: no package comment", dir))
		}
	}
	problems = append(problems, methods.problems()...)
	problems = append(problems, names.problems()...)
	sort.Strings(problems)
	return problems, err
}

// skipped tells folders that hold no package of ours.
func skipped(dir string) bool {
	base := path.Base(dir)
	return dir != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") ||
		base == "testdata" || base == "vendor")
}

func parse(name, module string, text []byte, problems *[]string) (*source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	report := func(at token.Pos, format string, args ...any) {
		p := set.Position(at)
		*problems = append(*problems, fmt.Sprintf("%s:%d: %s", p.Filename, p.Line,
			fmt.Sprintf(format, args...)))
	}
	return &source{name: name, dir: path.Dir(name), module: module, file: file, set: set,
		report: report}, nil
}

func (s *source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// forTests tells whether the file is never linked into a host.
func (s *source) forTests() bool { return s.isTest() || servesTests(s.dir) }

func (s *source) check() {
	// What a program has generated is read in its source.
	if !ast.IsGenerated(s.file) {
		s.checkSizes()
		s.checkComments()
	}
	p, ok := placeOf(s.dir)
	if !ok {
		s.report(s.file.Package, "package %s has no place in the picture", s.dir)
		return
	}
	for _, spec := range s.file.Imports {
		s.checkImport(p, spec)
	}
	if p.core && !s.forTests() {
		s.checkCore()
	}
}

func (s *source) checkImport(p place, spec *ast.ImportSpec) {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		s.report(spec.Pos(), "import %s: %v", spec.Path.Value, err)
		return
	}
	ours := within(name, s.module)
	dir := strings.TrimPrefix(strings.TrimPrefix(name, s.module), "/")
	switch {
	case ours && within(dir, cuda) && !within(s.dir, cuda) && s.inDefaultBuild():
		s.report(spec.Pos(), "imports %s in the default build", cuda)
	case s.forTests():
	case ours && !p.mayImport(dir), ours && !p.free && usesForeignAddOn(s.dir, dir):
		s.report(spec.Pos(), "%s imports %s", s.dir, dir)
	case !ours && withinAny(name, testOnly):
		s.report(spec.Pos(), "%s is for tests", name)
	case !ours && !standard(name) && !p.mayUse(name):
		s.report(spec.Pos(), "%s imports %s", s.dir, name)
	case p.core && concurrent[name] != "":
		s.report(spec.Pos(), "a core imports %s: %s", name, concurrent[name])
	}
}

// standard tells packages of the standard library: their first element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// inDefaultBuild tells whether the file is compiled without any tag set.
func (s *source) inDefaultBuild() bool {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if c.Pos() > s.file.Package || !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				s.report(c.Pos(), "%v", err)
				return true
			}
			return expr.Eval(func(tag string) bool {
				return tag == runtime.GOOS || tag == runtime.GOARCH || tag == "unix" || tag == "gc" ||
					strings.HasPrefix(tag, "go1.")
			})
		}
	}
	return true
}

// checkCore finds what makes a program's outcome depend on more than its input.
func (s *source) checkCore() {
	clocks := ""
	for _, spec := range s.file.Imports {
		if spec.Path.Value == `"time"` {
			clocks = "time"
			if spec.Name != nil {
				clocks = spec.Name.Name
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			s.report(n.Pos(), "a core starts a goroutine")
		case *ast.ChanType:
			s.report(n.Pos(), "a core has a channel")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && clocks != "" && x.Name == clocks && clock[n.Sel.Name] {
				s.report(n.Pos(), "a core reads the clock: %s.%s", x.Name, n.Sel.Name)
			}
		}
		return true
	})
}

// checkSizes holds the limits of file and function length.
func (s *source) checkSizes() {
	if lines := s.set.File(s.file.FileStart).LineCount(); lines > maxFile {
		s.report(s.file.Package, "%d lines, at most %d", lines, maxFile)
	}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1; lines > maxFunction {
			s.report(f.Pos(), "function %s has %d lines, at most %d", f.Name.Name, lines, maxFunction)
		}
	}
}
