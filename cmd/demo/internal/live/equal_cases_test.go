package live_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// equalCases are pairs of answers; differs is a part of the difference, empty if
// they are equal.
var equalCases = []struct {
	name      string
	got, want string
	modulo    modulo
	differs   string // empty: equal
}{
	{"spaces and order of fields", `{"op":"x","ok":true}`, `{"ok": true, "op": "x"}`, 0, ""},
	{"a field more", `{"op":"x","new":1}`, `{"op":"x"}`, 0, ""},
	{"a field less", `{"op":"x"}`, `{"op":"x","old":1}`, protocol, "lacks old"},
	{"an answer more", "{}\n{}", "{}\n", protocol, "2 answers, want 1"},
	{"a number", `{"a":1}`, `{"a":2}`, protocol, "a: 1, want 2"},
	{"a number and a text", `{"a":"1"}`, `{"a":1}`, protocol, "a: 1, want 1"},
	{"null and zero", `{"window":0}`, `{"window":null}`, protocol, "window"},
	{"an object for a list", `{"a":{}}`, `{"a":[]}`, protocol, "no list"},
	{"a list for an object", `{"a":[]}`, `{"a":{}}`, protocol, "no object"},
	{"no JSON", `{"a"`, `{}`, protocol, "got:"},

	{"pages as they are", `{"tables":{"p":[0,1]}}`, `{"tables":{"p":[1,0]}}`, 0, "tables.p"},
	{"pages renamed", `{"tables":{"p":[0,1]}}`, `{"tables":{"p":[1,0]}}`, anyPages, ""},
	{"pages of two pools", `{"tables":{"p":[0],"q":[0]}}`, `{"tables":{"p":[1],"q":[2]}}`, anyPages,
		""},
	{"two pages for one", `{"tables":{"p":[[0,1],[0,2]]}}`, `{"tables":{"p":[[0,1],[0,1]]}}`, anyPages,
		"tables.p"},
	{"one page for two", `{"tables":{"p":[[0,1],[0,1]]}}`, `{"tables":{"p":[[0,1],[0,2]]}}`, anyPages,
		"tables.p"},
	{"a page where the window has passed", `{"tables":{"p":[0,1]}}`, `{"tables":{"p":[-1,1]}}`,
		anyPages, "tables.p"},
	{"a page too many", `{"new_pages":{"p":[0,1]}}`, `{"new_pages":{"p":[0]}}`, anyPages,
		"2 items, want 1"},
	{"a pool too many", `{"new_pages":{"p":[0],"q":[]}}`, `{"new_pages":{"p":[0]}}`, anyPages,
		"2 members, want 1"},
	{"pages of another line", "{\"tables\":{\"p\":[0]}}\n{\"tables\":{\"p\":[1]}}",
		"{\"tables\":{\"p\":[0]}}\n{\"tables\":{\"p\":[0]}}", anyPages, ""},
	{"what moved", `{"moved":{"p":[[1,2],[3,4]]}}`, `{"moved":{"p":[[5,0]]}}`, anyPages, ""},
	{"tokens are no pages", `{"tokens":[1]}`, `{"tokens":[2]}`, protocol, "tokens"},

	{"hashes as they are", `{"hash":"a"}`, `{"hash":"b"}`, 0, "hash"},
	{"hashes renamed in all lines", "{\"hash\":\"a\"}\n{\"parent\":\"a\",\"hashes\":[\"a\",\"c\"]}",
		"{\"hash\":\"b\"}\n{\"parent\":\"b\",\"hashes\":[\"b\",\"a\"]}", anyHashes, ""},
	{"two hashes for one", "{\"hash\":\"a\"}\n{\"hash\":\"b\"}", "{\"hash\":\"x\"}\n{\"hash\":\"x\"}",
		anyHashes, "answer 2"},
	{"one hash for two", "{\"hash\":\"a\"}\n{\"hash\":\"a\"}", "{\"hash\":\"x\"}\n{\"hash\":\"y\"}",
		anyHashes, "answer 2"},
	{"another engine names again", "{\"hash\":\"a\"}\n{\"op\":\"open\",\"ok\":true}\n{\"hash\":\"a\"}",
		"{\"hash\":\"x\"}\n{\"op\":\"open\",\"ok\":true}\n{\"hash\":\"y\"}", anyHashes, ""},
	{"no other engine", "{\"hash\":\"a\"}\n{\"op\":\"open\",\"ok\":false}\n{\"hash\":\"a\"}",
		"{\"hash\":\"x\"}\n{\"op\":\"open\",\"ok\":false}\n{\"hash\":\"y\"}", anyHashes, "answer 3"},
	{"no parent", `{"parent":null}`, `{"parent":"x"}`, anyHashes, "parent"},

	{"words", `{"error":{"code":"c","message":"a"}}`, `{"error":{"code":"c","message":"b"}}`, anyWords,
		""},
	{"codes", `{"error":{"code":"c","message":"a"}}`, `{"error":{"code":"d","message":"a"}}`, protocol,
		"error.code"},
	{"how many problems", `{"problems":["a"]}`, `{"problems":[]}`, protocol, "1 items"},
	{"checks", `{"checked_pages":1}`, `{"checked_pages":2}`, anyChecks, ""},

	{
		"events of two pools in another order",
		`{"events":[{"id":0,"type":"stored","pool":"p"},{"id":1,"type":"stored","pool":"q"}]}`,
		`{"events":[{"id":0,"type":"stored","pool":"q"},{"id":1,"type":"stored","pool":"p"}]}`, anyOrder,
		"",
	},
	{
		"events of one pool in another order",
		`{"events":[{"id":0,"type":"stored","pool":"p"},{"id":1,"type":"updated","pool":"p"}]}`,
		`{"events":[{"id":0,"type":"updated","pool":"p"},{"id":1,"type":"stored","pool":"p"}]}`, protocol,
		"events.type",
	},
	{
		"removals merged",
		`{"events":[{"id":0,"type":"removed","pool":"p","hashes":["a","b"]}]}`,
		`{"events":[{"id":0,"type":"removed","pool":"p","hashes":["a"]},` +
			`{"id":1,"type":"removed","pool":"p","hashes":["b"]}]}`, anyOrder, "",
	},
	{
		"removals in another order",
		"{\"hash\":\"a\",\"parent\":\"b\"}\n" +
			`{"events":[{"type":"removed","pool":"p","hashes":["a","b","c"]}]}`,
		"{\"hash\":\"x\",\"parent\":\"y\"}\n" +
			`{"events":[{"type":"removed","pool":"p","hashes":["z","y"]},{"type":"removed","pool":"p","hashes":["x"]}]}`, protocol, "",
	},
	{
		"other removals",
		"{\"hash\":\"a\",\"parent\":\"b\"}\n" +
			`{"events":[{"type":"removed","pool":"p","hashes":["a"]}]}`,
		"{\"hash\":\"x\",\"parent\":\"y\"}\n" +
			`{"events":[{"type":"removed","pool":"p","hashes":["y"]}]}`, protocol, "hashes",
	},
	{
		"a snapshot in other runs",
		`{"events":[{"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"a"},{"hash":"b"}]}]}`,
		`{"events":[{"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"x"}]},` +
			`{"type":"stored","pool":"p","parent":"x","blocks":[{"hash":"y"}]}]}`, protocol, "",
	},
	{
		"a snapshot whose events have the id of the last one",
		`{"snapshot":true,"events":[{"id":4,"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"a"},{"hash":"b"}]}]}`,
		`{"events":[{"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"x"}]},` +
			`{"type":"stored","pool":"p","parent":"x","blocks":[{"hash":"y"}]}]}`, protocol, "",
	},
	{
		"a snapshot with another parent",
		`{"events":[{"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"a"},{"hash":"b"}]}]}`,
		`{"events":[{"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"x"}]},` +
			`{"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"y"}]}]}`, protocol, "parent",
	},
	{
		"runs of stored events are no snapshot",
		`{"events":[{"id":0,"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"a"},{"hash":"b"}]}]}`,
		`{"events":[{"id":0,"type":"stored","pool":"p","parent":null,"blocks":[{"hash":"x"}]},` +
			`{"id":1,"type":"stored","pool":"p","parent":"x","blocks":[{"hash":"y"}]}]}`, protocol, "1 items, want 2",
	},
	{
		"removals with something between them",
		`{"events":[{"type":"removed","pool":"p","hashes":["a","b"]},{"type":"updated","pool":"p"}]}`,
		`{"events":[{"type":"removed","pool":"p","hashes":["a"]},{"type":"updated","pool":"p"},` +
			`{"type":"removed","pool":"p","hashes":["b"]}]}`, anyOrder, "2 items, want 3",
	},
}

func TestEqual(t *testing.T) {
	for _, c := range equalCases {
		t.Run(c.name, func(t *testing.T) {
			err := equalAnswers([]byte(c.got), []byte(c.want), c.modulo)
			if c.differs == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.differs)
			}
		})
	}
}
