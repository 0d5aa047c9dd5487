package kvconfig

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// ReadYAML reads one YAML mapping over the defaults; an empty text is an empty
// mapping. Errors are as in ReadJSON. Aliases, merge keys and tags are refused: nothing here is
// worth repeating, and a few of them can stand for gigabytes.
func ReadYAML(r io.Reader) (windows.Config, error) {
	c := windows.DefaultConfig()
	err := MergeYAML(&c, r)
	return c, err
}

// MergeYAML reads as ReadYAML does, over a configuration in place of the defaults.
func MergeYAML(c *windows.Config, r io.Reader) error {
	entries, err := readYAML(r, configText)
	if err != nil {
		return err
	}
	*c, err = build(*c, entries)
	return err
}

// Set sets the field of a name of the section, as a flag does. The value is YAML, as it
// stands behind the name in a file: a number, a word, [512, 32768]. An empty one leaves the field
// as it is. Errors are as in ReadJSON.
func Set(c *windows.Config, name, value string) error {
	v, err := decodeYAML([]byte(value))
	if err != nil {
		return refusals.New(messages.ErrBadRequest, "%s is not YAML: %s", name, placed(err))
	}
	return merge(c, "", []entry{{name, v}})
}

// readYAML reads one YAML mapping. what names the text in errors.
func readYAML(r io.Reader, what string) ([]entry, error) {
	raw, err := read(r, what)
	if err != nil {
		return nil, err
	}
	value, err := decodeYAML(raw)
	if err != nil {
		return nil, refusals.New(messages.ErrBadRequest, "%s is not YAML: %s", what, placed(err))
	}
	// An empty text asks for the defaults. An empty JSON text is no JSON.
	if value == nil {
		return nil, nil
	}
	return object(value, what)
}

// place is how the library writes where something is in the text.
var place = regexp.MustCompile(`\[(\d+):(\d+)\]`)

// placed is an error of the library, which begins with a place and draws it below its first line.
func placed(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if strings.HasPrefix(text, "[") {
		text = strings.Replace(text, "] ", "]: ", 1)
	}
	return place.ReplaceAllString(text, "line $1, column $2")
}

// decodeYAML reads the text into the values of an entry.
func decodeYAML(raw []byte, options ...parser.Option) (any, error) {
	file, err := parser.ParseBytes(raw, 0, options...)
	if err != nil {
		return nil, err
	}
	switch len(file.Docs) {
	case 0:
		return nil, nil
	case 1:
		return yamlValue(file.Docs[0].Body)
	default:
		return nil, fmt.Errorf("%d documents instead of one", len(file.Docs))
	}
}

// yamlValue converts a node. What only large or generated files need is refused: nothing here is
// worth repeating, and a few aliases can stand for gigabytes.
func yamlValue(node ast.Node) (any, error) {
	switch n := node.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode: // an empty text
		return nil, nil
	case *ast.MappingNode:
		return yamlObject(n)
	case *ast.SequenceNode:
		return yamlList(n)
	case *ast.AnchorNode:
		return yamlValue(n.Value)
	case *ast.StringNode:
		if n.Token.Type == token.StringType && decimal.MatchString(n.Value) {
			// The library takes 1e6 and what 64 bits do not hold for text.
			return jsonNumber(strings.ReplaceAll(n.Value, "_", "")), nil
		}
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode:
		// As written, so that the error shows the author's number.
		if v, ok := n.Value.(uint64); ok && v <= math.MaxInt64 {
			return int64(v), nil
		} else if ok {
			return tooLarge(strconv.FormatUint(v, 10)), nil
		}
		return n.Value, nil
	case *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.(ast.ScalarNode).GetValue(), nil
	default:
		at := node.GetToken().Position
		return nil, fmt.Errorf("line %d, column %d: %s has no place here", at.Line, at.Column,
			yamlWord(node))
	}
}

// decimal is a number as it is written.
var decimal = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?$`)

// yamlWord names what yamlValue does not take.
func yamlWord(node ast.Node) string {
	switch node.(type) {
	case *ast.AliasNode:
		return "an alias"
	case *ast.TagNode:
		return "a tag"
	case *ast.MergeKeyNode:
		return "a merge key"
	default:
		return "what stands there"
	}
}

func yamlObject(n *ast.MappingNode) (any, error) {
	entries := make([]entry, 0, len(n.Values))
	for _, member := range n.Values {
		// YAML allows keys of any type; as text they are unknown names and are reported.
		node := ast.Node(member.Key)
		if marked, ok := node.(*ast.MappingKeyNode); ok { // with a question mark
			node = marked.Value
		}
		name := node.String()
		switch key := node.(type) {
		case *ast.StringNode:
			name = key.Value
		case *ast.MergeKeyNode, *ast.AliasNode, *ast.TagNode:
			return yamlValue(key)
		}
		value, err := yamlValue(member.Value)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name, value})
	}
	return entries, nil
}

func yamlList(n *ast.SequenceNode) (any, error) {
	list := make([]any, 0, len(n.Values))
	for _, item := range n.Values {
		value, err := yamlValue(item)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}
