package hfconfig

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A rule of families.txt is an expression in the syntax of Go, over the keys of a file:
//
//	a.b          the key b in the object a, or the key of this name; of a list, the
//	             element of the layer
//	r.x          another rule of the family; r.layer the layer, r.count the number of layers
//	"x"          the text x
//	a|b          the first that the file has
//	+ - * / %    / must divide without a rest
//	== >= <      1 or 0
//	f(a, …)      one of the functions of call

// compile reads an expression. A wrong one is a panic, since all of them are in the package.
func compile(rule string) ast.Expr {
	e, err := parser.ParseExpr(rule)
	if err != nil {
		panic(fmt.Sprintf("hfconfig: rule %s: %v", rule, err))
	}
	return e
}

// word is a name with its dots.
func word(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return word(s.X) + "." + s.Sel.Name
	}
	return e.(*ast.Ident).Name
}

// keysOf appends the keys of a file that an expression reads.
func keysOf(e ast.Expr, to []string) []string {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return keysOf(e.X, to)
	case *ast.BinaryExpr:
		return keysOf(e.Y, keysOf(e.X, to))
	case *ast.CallExpr:
		for _, a := range e.Args {
			to = keysOf(a, to)
		}
	case *ast.Ident, *ast.SelectorExpr:
		path := word(e)
		if top, _, _ := strings.Cut(path, "."); top != "r" {
			to = append(to, top, path)
		}
	}
	return to
}

// value is a number, a text, or absent. key is where it comes from, for problems.
type value struct {
	number int
	text   string
	known  bool
	key    string
}

func (v value) on() bool { return v.known && (v.number != 0 || v.text != "") }

// evaluate computes an expression for the layer that is being read.
func (r *reading) evaluate(e ast.Expr) value {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return r.evaluate(e.X)
	case *ast.CallExpr:
		return r.call(word(e.Fun), e.Args)
	case *ast.BinaryExpr:
		return r.binary(e)
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return value{text: strings.Trim(e.Value, `"`), known: true}
		}
		n, _ := strconv.Atoi(e.Value)
		return number(n)
	}
	path := word(e)
	name, rule := strings.CutPrefix(path, "r.")
	switch {
	case !rule:
		return r.convert(path, r.lookUp(path))
	case name == "layer":
		return number(r.layer)
	case name == "count":
		return number(r.count)
	}
	if e := r.rules.find(name); e != nil {
		return r.evaluate(e)
	}
	return value{key: name}
}

// binary computes an operator.
func (r *reading) binary(e *ast.BinaryExpr) value {
	a := r.evaluate(e.X)
	if e.Op == token.OR && a.known {
		return a
	}
	b := r.evaluate(e.Y)
	switch e.Op {
	case token.OR:
		if !b.known {
			b.key = a.key
		}
		return b
	case token.EQL:
		return truth(a.number == b.number && a.text == b.text)
	default:
		return r.arithmetic(e.Op, r.present(a), r.present(b))
	}
}

// arithmetic combines two numbers. A quotient by 0 is a problem of the file.
func (r *reading) arithmetic(operator token.Token, a, b value) value {
	if (operator == token.QUO || operator == token.REM) && b.number < 1 {
		r.problem("%s %d is not 1 or more", b.key, b.number)
		return number(1)
	}
	switch operator {
	case token.ADD:
		return number(a.number + b.number)
	case token.SUB:
		return number(a.number - b.number)
	case token.MUL:
		return r.bounded(a, b)
	case token.REM:
		return number(a.number % b.number)
	case token.QUO:
		if a.number%b.number != 0 {
			r.problem("%s %d is not divisible by %s %d", a.key, a.number, b.key, b.number)
		}
		return number(a.number / b.number)
	case token.GEQ:
		return truth(a.number >= b.number)
	default:
		return truth(a.number < b.number)
	}
}

// bounded multiplies: no state of a layer has 2⁴⁰ elements.
func (r *reading) bounded(a, b value) value {
	const most = 1 << 40
	if b.number != 0 && (a.number > most/max(1, b.number) || a.number < 0 || b.number < 0) {
		r.problem("%s %d times %s %d is not a size", a.key, a.number, b.key, b.number)
		return number(1)
	}
	return number(a.number * b.number)
}

func number(n int) value { return value{number: n, known: true} }

func truth(yes bool) value {
	if yes {
		return number(1)
	}
	return number(0)
}

// present is a value that must be there; a problem and 1 if it is not.
func (r *reading) present(v value) value {
	if !v.known {
		r.problem("%s is missing", v.key)
		v.number, v.known = 1, true
	}
	if v.text != "" && v.number == 0 {
		r.problem("%s is not an integer", v.key)
		v.number = 1
	}
	return v
}

// problem records a problem.
func (r *reading) problem(format string, args ...any) { r.config.say(format, args...) }

// lookUp finds a key, or one within objects. per_layer_config replaces keys of single
// layers. Of a list of objects, the one of the layer counts.
func (r *reading) lookUp(path string) any {
	c := r.config
	name, rest, nested := strings.Cut(path, ".")
	if layers, ok := c.values["per_layer_config"].(map[string]any); ok && !nested {
		own, _ := layers[fmt.Sprintf("%02d", r.layer)].(map[string]any)
		if own == nil {
			own, _ = layers[strconv.Itoa(r.layer)].(map[string]any)
		}
		if v := own[name]; v != nil {
			return v
		}
	}
	if v, ok := c.value(path); ok {
		return v
	}
	v, _ := c.value(name)
	for nested {
		if list, ok := v.([]any); ok && r.layer < len(list) {
			v = list[r.layer]
		}
		object, _ := v.(map[string]any)
		name, rest, nested = strings.Cut(rest, ".")
		v = object[name]
	}
	return v
}

// convert makes a value of what a file has. Of a list it is the element of the layer.
func (r *reading) convert(key string, v any) value {
	out := value{key: key, known: true}
	switch v := v.(type) {
	case nil:
		out.known = false
	case bool:
		return value{number: truth(v).number, key: key, known: true}
	case string:
		out.text = v
	case []any:
		if len(v) == 0 || r.count == 0 {
			out.known = false
			return out
		}
		if len(v) != r.count && len(v) != r.count+r.drafts {
			r.problem("%s has %d entries for %d layers", key, len(v), r.count)
			return value{number: 1, text: "none", key: key, known: true} // harmless as either
		}
		return r.convert(key, v[r.layer])
	case map[string]any:
		out.number = len(v)
	default:
		n, ok := integer(v)
		if !ok {
			r.problem("%s is not an integer", key)
			n = 1
		}
		out.number = n
	}
	return out
}

// call is a function:
//
//	when(a, b, c) b unless a is absent, 0 or empty, else c
//	split(a)      the share of one device of a heads of states
//	in(key, a)    whether the list of a key has the number a
//	letter(key)   the letter of the layer in a text, which repeats over the layers
//	list(key)     whether a key is a list
//	length(key)   the number of elements of a list, or of letters; absent if there is none
//	scaled(a, key, b)  a times the fraction of a key, or 1, rounded up to a multiple of b
//	min(a, b)
func (r *reading) call(name string, args []ast.Expr) value {
	switch name {
	case "when":
		if r.evaluate(args[0]).on() {
			return r.evaluate(args[1])
		}
		return r.evaluate(args[2])
	case "split":
		v := r.present(r.evaluate(args[0]))
		if v.number < 1 {
			r.problem("%s %d is not 1 or more", v.key, v.number)
			return number(1)
		}
		return number(r.split(v.number, "of "+v.key))
	case "scaled":
		return r.scaled(r.present(r.evaluate(args[0])).number, word(args[1]), r.evaluate(args[2]).number)
	case "min":
		return number(min(r.present(r.evaluate(args[0])).number, r.present(r.evaluate(args[1])).number))
	case "in":
		at, key := r.evaluate(args[1]).number, word(args[0])
		if r.lookUp(key) == nil {
			r.problem("%s is missing", key)
		}
		return truth(slices.Contains(r.indices(key), at))
	}
	out := value{key: word(args[0])}
	v := r.lookUp(out.key)
	text, _ := v.(string)
	list, _ := v.([]any)
	switch {
	case name == "length" && len(text)+len(list) > 0:
		out.number, out.known = len(text)+len(list), true
	case name == "list":
		return truth(len(list) > 0)
	case name == "letter" && text != "":
		out.text, out.known = string(text[r.layer%len(text)]), true
	}
	return out
}

// scaled is a number times the fraction of a key, rounded up to a multiple.
func (r *reading) scaled(n int, key string, multiple int) value {
	factor := 1.0
	switch v := r.lookUp(key).(type) {
	case nil:
	case int:
		factor = float64(v)
	case json.Number:
		factor, _ = v.Float64()
	default:
		r.problem("%s is not a number", key)
	}
	if !(factor > 0 && factor < 1<<10) {
		r.problem("%s %v is not a factor", key, factor)
		return number(1)
	}
	whole := int(math.Ceil(float64(n) * factor / float64(multiple)))
	return value{number: whole * multiple, known: true, key: key}
}

// indices is a list of layers, which must exist. Lists of both origins do: 1 more than
// the layers is allowed.
func (r *reading) indices(key string) []int {
	var out []int
	list, _ := r.lookUp(key).([]any)
	for _, v := range list {
		n, ok := integer(v)
		if !ok || n < 0 || n > r.count {
			r.problem("%s: there is no layer %v", key, v)
		}
		out = append(out, n)
	}
	return out
}
