package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// methodSets are the methods that each type of the module declares, and the types that
// it embeds, both by folder and name of the type. A type has the methods of what it
// embeds as well: splitting a type into embedded parts makes it no smaller for those who
// call it, so the limit counts them.
type methodSets struct {
	declared map[string][]string
	embedded map[string][]string
}

func newMethodSets() *methodSets {
	return &methodSets{declared: map[string][]string{}, embedded: map[string][]string{}}
}

// add notes what one file declares.
func (m *methodSets) add(s *source) {
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				continue
			}
			if owner := s.typeNamed(d.Recv.List[0].Type); owner != "" {
				m.declared[owner] = append(m.declared[owner], d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					m.addType(s, t)
				}
			}
		}
	}
}

// addType notes the embedded fields of a struct, the methods and embedded interfaces of
// an interface, and what an alias stands for.
func (m *methodSets) addType(s *source, spec *ast.TypeSpec) {
	owner := s.dir + "." + spec.Name.Name
	var fields *ast.FieldList
	contract := false
	switch t := spec.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields, contract = t.Methods, true
	default:
		if spec.Assign.IsValid() {
			m.embedded[owner] = append(m.embedded[owner], s.typeNamed(spec.Type))
		}
		return
	}
	for _, f := range fields.List {
		switch {
		case len(f.Names) == 0:
			m.embedded[owner] = append(m.embedded[owner], s.typeNamed(f.Type))
		case contract:
			m.declared[owner] = append(m.declared[owner], f.Names[0].Name)
		}
	}
}

// typeNamed is the folder and name of a type of this module, empty for others. A pointer
// and a type with parameters have the methods of what is named.
func (s *source) typeNamed(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.typeNamed(e.X)
	case *ast.IndexExpr:
		return s.typeNamed(e.X)
	case *ast.IndexListExpr:
		return s.typeNamed(e.X)
	case *ast.Ident:
		return s.dir + "." + e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			if dir, ok := s.imported(x.Name); ok {
				return dir + "." + e.Sel.Name
			}
		}
	}
	return ""
}

// imported is the folder of this module that a file imports under a name.
func (s *source) imported(name string) (dir string, ok bool) {
	for _, spec := range s.file.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !within(importPath, s.module) {
			continue
		}
		local := path.Base(importPath)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == name {
			return strings.TrimPrefix(strings.TrimPrefix(importPath, s.module), "/"), true
		}
	}
	return "", false
}

// of are the names of a type's methods, those of what it embeds included. A name that two
// embedded types have is counted once, although no one could call it. seen ends the walk
// of types that embed pointers to each other.
func (m *methodSets) of(owner string, seen map[string]bool) map[string]bool {
	names := map[string]bool{}
	if seen[owner] {
		return names
	}
	seen[owner] = true
	for _, n := range m.declared[owner] {
		names[n] = true
	}
	for _, part := range m.embedded[owner] {
		maps.Copy(names, m.of(part, seen))
	}
	return names
}

// problems is a sentence for each type with more methods than are allowed.
func (m *methodSets) problems() (problems []string) {
	owners := slices.Concat(slices.Collect(maps.Keys(m.declared)),
		slices.Collect(maps.Keys(m.embedded)))
	slices.Sort(owners)
	for _, owner := range slices.Compact(owners) {
		if n := len(m.of(owner, map[string]bool{})); n > maxMethods {
			problems = append(problems, fmt.Sprintf("%s has %d methods, at most %d", owner, n, maxMethods))
		}
	}
	return problems
}
