package archtest

import (
	"go/ast"
	"slices"
	"strings"
)

// checkComments holds that a doc comment begins with the name of what it
// documents, as go doc and readers of an index expect. A type may have an article
// before its name. The comment of a group of constants or variables, directives
// and the comments of test functions, which no index shows, are free.
func (s *source) checkComments() {
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !s.isTest() || !isTestFunction(d.Name.Name) {
				s.checkComment(d.Doc, d.Name)
			}
		case *ast.GenDecl:
			s.checkGroup(d)
		}
	}
}

// isTestFunction reports whether go test runs the function by its name.
func isTestFunction(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// checkGroup checks the comments of a declaration of types, constants or variables.
func (s *source) checkGroup(d *ast.GenDecl) {
	grouped := d.Lparen.IsValid()
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := spec.Doc
			if doc == nil && !grouped {
				doc = d.Doc
			}
			s.checkComment(doc, spec.Name)
		case *ast.ValueSpec:
			doc := spec.Doc
			if grouped && doc != nil && len(d.Specs) > 1 {
				continue // a heading of what follows in the group
			}
			if !grouped {
				doc = d.Doc
			}
			s.checkComment(doc, spec.Names...)
		}
	}
}

// checkComment reports a comment that begins with none of the names.
func (s *source) checkComment(doc *ast.CommentGroup, names ...*ast.Ident) {
	if doc == nil || names[0].Name == "_" || s.file.Name.Name == "main" && names[0].Name == "main" {
		return
	}
	words := strings.Fields(doc.Text())
	if len(words) == 0 { // nothing but directives
		return
	}
	if slices.Contains([]string{"A", "An", "The", "Deprecated:"}, words[0]) && len(words) > 1 {
		words = words[1:]
	}
	first := strings.TrimSuffix(strings.TrimRight(words[0], ",.:;"), "'s")
	if slices.ContainsFunc(names, func(name *ast.Ident) bool { return name.Name == first }) {
		return
	}
	s.report(doc.Pos(), "the comment of %s begins with %q", names[0].Name, words[0])
}
