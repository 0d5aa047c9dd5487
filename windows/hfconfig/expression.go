package hfconfig

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// expression is a rule of families.txt, over the keys of a file:
//
//	a.b          the key b in the object a, or the key of this name; of a list, the
//	             element of the layer
//	$x           another rule of the family; $i the layer, $n the number of layers
//	'x           the text x
//	a|b          the first that the file has
//	+ - * / // % / must divide without a rest, // need not
//	== >= <      1 or 0
//	a ? b : c    b unless a is absent, 0 or empty
//	f(a, …)      one of the functions of calls
//
// A leaf of the tree has a word, all other nodes have an operator and operands.
type expression struct {
	operator string // "", or a function's name with "(" behind it
	word     string
	operands []*expression
}

// value is a number, a text, or absent. key is where it comes from, for problems.
type value struct {
	number int
	text   string
	known  bool
	key    string
}

func (v value) on() bool { return v.known && (v.number != 0 || v.text != "") }

// compiler reads expressions by recursive descent; a wrong one is a panic, since all
// of them are in the package.
type compiler struct {
	words []string
	rule  string
}

// compile reads an expression.
func compile(rule string) *expression {
	c := compiler{words: wordsOf(rule), rule: rule}
	e := c.choice()
	if len(c.words) > 0 {
		panic(fmt.Sprintf("hfconfig: %q behind the end of rule %s", c.words[0], rule))
	}
	return e
}

// wordsOf splits a rule into names, numbers and operators.
func wordsOf(rule string) []string {
	var words []string
	for len(rule) > 0 {
		n := strings.IndexFunc(rule,
			func(r rune) bool { return strings.ContainsRune("|+*/%=<>?:(),!- ", r) })
		switch {
		case n < 0:
			n = len(rule)
		case n == 0 && (strings.HasPrefix(rule, "//") || strings.HasPrefix(rule, "==") ||
			strings.HasPrefix(rule, ">=")):
			n = 2
		case n == 0:
			n = 1
		}
		if word := rule[:n]; word != " " {
			words = append(words, word)
		}
		rule = rule[n:]
	}
	return words
}

// next takes the next word if it is one of those.
func (c *compiler) next(words ...string) string {
	if len(c.words) == 0 || !slices.Contains(words, c.words[0]) {
		return ""
	}
	word := c.words[0]
	c.words = c.words[1:]
	return word
}

func (c *compiler) expect(word string) {
	if c.next(word) == "" {
		panic(fmt.Sprintf("hfconfig: %q is missing in rule %s", word, c.rule))
	}
}

func (c *compiler) choice() *expression {
	e := c.binary(0)
	if c.next("?") == "" {
		return e
	}
	yes := c.choice()
	c.expect(":")
	return &expression{operator: "?", operands: []*expression{e, yes, c.choice()}}
}

// levels are the operators from the weakest to the strongest.
var levels = [][]string{{"==", ">=", "<"}, {"+", "-"}, {"*", "/", "//", "%"}, {"|"}}

func (c *compiler) binary(level int) *expression {
	if level == len(levels) {
		return c.leaf()
	}
	e := c.binary(level + 1)
	for {
		operator := c.next(levels[level]...)
		if operator == "" {
			return e
		}
		e = &expression{operator: operator, operands: []*expression{e, c.binary(level + 1)}}
	}
}

func (c *compiler) leaf() *expression {
	if c.next("(") != "" {
		e := c.choice()
		c.expect(")")
		return e
	}
	if len(c.words) == 0 {
		panic("hfconfig: an operand is missing in rule " + c.rule)
	}
	e := &expression{word: c.words[0]}
	c.words = c.words[1:]
	if c.next("(") == "" {
		return e
	}
	e.operator, e.word = e.word+"(", ""
	for c.next(")") == "" {
		e.operands = append(e.operands, c.choice())
		c.next(",")
	}
	return e
}

// keys appends the keys of a file that an expression reads.
func (e *expression) keys(to []string) []string {
	if _, err := strconv.Atoi(e.word); err != nil && e.word != "" &&
		!strings.ContainsAny(e.word[:1], "$'") {
		top, _, _ := strings.Cut(e.word, ".")
		to = append(to, top, e.word)
	}
	for _, o := range e.operands {
		to = o.keys(to)
	}
	return to
}

// evaluate computes an expression for the layer that is being read.
func (r *reading) evaluate(e *expression) value {
	if e.operator == "" {
		return r.leaf(e.word)
	}
	if strings.HasSuffix(e.operator, "(") {
		return r.call(e.operator, e.operands)
	}
	a := r.evaluate(e.operands[0])
	switch e.operator {
	case "|":
		if a.known {
			return a
		}
		b := r.evaluate(e.operands[1])
		if !b.known {
			b.key = a.key
		}
		return b
	case "?":
		if a.on() {
			return r.evaluate(e.operands[1])
		}
		return r.evaluate(e.operands[2])
	}
	b := r.evaluate(e.operands[1])
	if e.operator == "==" {
		return truth(a.number == b.number && a.text == b.text)
	}
	return r.arithmetic(e.operator, r.present(a), r.present(b))
}

// arithmetic combines two numbers. A quotient by 0 is a problem of the file.
func (r *reading) arithmetic(operator string, a, b value) value {
	if strings.ContainsAny(operator, "/%") && b.number < 1 {
		r.problem("%s %d is not 1 or more", b.key, b.number)
		return number(1)
	}
	switch operator {
	case "+":
		return number(a.number + b.number)
	case "-":
		return number(a.number - b.number)
	case "*":
		return r.bounded(a, b)
	case "//":
		return number(a.number / b.number)
	case "%":
		return number(a.number % b.number)
	case "/":
		if a.number%b.number != 0 {
			r.problem("%s %d is not divisible by %s %d", a.key, a.number, b.key, b.number)
		}
		return number(a.number / b.number)
	case ">=":
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

// leaf is the value of one word.
func (r *reading) leaf(word string) value {
	if n, err := strconv.Atoi(word); err == nil {
		return number(n)
	}
	switch {
	case word == "$i":
		return number(r.layer)
	case word == "$n":
		return number(r.count)
	case word[0] == '$':
		if e := r.rules.find(word[1:]); e != nil {
			return r.evaluate(e)
		}
		return value{key: word[1:]}
	case word[0] == '\'':
		return value{text: word[1:], known: true}
	}
	return r.convert(word, r.lookUp(word))
}

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
//	split(a)      the share of one device of a heads of states
//	in(key, a)    whether the list of a key has the number a
//	letter(key)   the letter of the layer in a text, which repeats over the layers
//	list(key)     whether a key is a list
//	length(key)   the number of elements of a list, or of letters; absent if there is none
//	scaled(a, key, b)  a times the fraction of a key, or 1, rounded up to a multiple of b
//	min(a, b)
func (r *reading) call(name string, args []*expression) value {
	switch name {
	case "split(":
		v := r.present(r.evaluate(args[0]))
		if v.number < 1 {
			r.problem("%s %d is not 1 or more", v.key, v.number)
			return number(1)
		}
		return number(r.split(v.number, "of "+v.key))
	case "scaled(":
		return r.scaled(r.present(r.evaluate(args[0])).number, args[1].word, r.evaluate(args[2]).number)
	case "min(":
		return number(min(r.present(r.evaluate(args[0])).number, r.present(r.evaluate(args[1])).number))
	case "in(":
		at := r.evaluate(args[1]).number
		if r.lookUp(args[0].word) == nil {
			r.problem("%s is missing", args[0].word)
		}
		return truth(slices.Contains(r.indices(args[0].word), at))
	}
	v := r.lookUp(args[0].word)
	out := value{key: args[0].word}
	text, _ := v.(string)
	list, _ := v.([]any)
	switch {
	case name == "length(" && len(text)+len(list) > 0:
		out.number, out.known = len(text)+len(list), true
	case name == "list(":
		return truth(len(list) > 0)
	case name == "letter(" && text != "":
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
