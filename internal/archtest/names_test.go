package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// maxNames is how many names a package may export, by folder. Each name in package
// messages is one that every host has to know of, so what only some hosts use has a
// package below it. A name is a type, function, constant or variable of the package;
// methods and fields are found at their type.
var maxNames = map[string]int{
	"messages": 95,
}

// exported counts the names that the packages of maxNames export.
type exported map[string]int

// add counts what one file declares.
func (e exported) add(s *source) {
	if _, ok := maxNames[s.dir]; !ok {
		return
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				e.count(s.dir, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					e.count(s.dir, spec.Name)
				case *ast.ValueSpec:
					e.count(s.dir, spec.Names...)
				}
			}
		}
	}
}

func (e exported) count(dir string, names ...*ast.Ident) {
	for _, n := range names {
		if n.IsExported() {
			e[dir]++
		}
	}
}

// problems is a sentence for each package that exports more names than are allowed.
func (e exported) problems() (problems []string) {
	for _, dir := range slices.Sorted(maps.Keys(e)) {
		if n := e[dir]; n > maxNames[dir] {
			problems = append(problems, fmt.Sprintf("%s exports %d names, at most %d", dir, n,
				maxNames[dir]))
		}
	}
	return problems
}
