package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/kvactor/kvactor"

func TestTheModuleKeepsThePicture(t *testing.T) {
	root := moduleRoot(t)
	problems, err := Check(os.DirFS(root), module)
	require.NoError(t, err)
	assert.Empty(t, problems, strings.Join(problems, "\n"))
}

// moduleRoot is the nearest folder above with a go.mod.
func moduleRoot(t *testing.T) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			require.Contains(t, string(text), "module "+module+"\n")
			return dir
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no go.mod above the test")
		dir = filepath.Dir(dir)
	}
}

const own = `import _ "github.com/kvactor/kvactor/`

// rules are files that keep or break one rule each.
var rules = []struct {
	name, file, text string
	want             string // empty: allowed
}{
	{"messages stand alone", "messages/a.go", own + `windows"`, "messages imports windows"},
	{"messages use the library", "messages/a.go", `import _ "fmt"`, ""},
	{"the protocol uses messages", "internal/protocol/a.go", own + `messages"`, ""},
	{"the protocol uses no core", "internal/protocol/a.go", own + `tree"`,
		"internal/protocol imports tree"},
	{"a core uses the protocol", "pool/a.go", own + `internal/protocol"`, ""},
	{"windows use messages", "windows/a.go", own + `messages"`, ""},
	{"windows use no core", "windows/a.go", own + `tree"`, "windows imports tree"},
	{"kvconfig reads YAML", "windows/kvconfig/a.go", `import _ "github.com/goccy/go-yaml/parser"`, ""},
	{"kvconfig reads files", "windows/kvconfig/a.go", `import _ "os"`, ""},
	{"windows read no YAML", "windows/a.go", `import _ "github.com/goccy/go-yaml"`,
		"windows imports github.com/goccy/go-yaml"},
	{"a core uses windows", "tree/a.go", own + `windows"`, ""},
	{"a core uses its own parts", "tree/radix/a.go", own + `tree/edge"`, ""},
	{"a core uses the heap", "tree/a.go", own + `internal/heap"`, ""},
	{"the heap uses no core", "internal/heap/a.go", own + `tree"`, "internal/heap imports tree"},
	{"a policy uses the order", "pool/evict/published/a.go", own + `pool/evict"`, ""},
	{"a policy needs no records of actors", "pool/evict/published/a.go", own + `internal/protocol"`,
		"pool/evict/published imports internal/protocol"},
	{"the order has no policies from papers", "pool/evict/a.go", own + `pool/evict/published"`,
		"pool/evict imports pool/evict/published"},
	{"nor has the engine", "actors/a.go", own + `pool/evict/published"`,
		"actors imports pool/evict/published"},
	{"nor the root", "a.go", own + `pool/evict/published"`, ". imports pool/evict/published"},
	{"hosts may", "cmd/demo/a.go", own + `pool/evict/published"`, ""},
	{"no core uses another", "tree/a.go", own + `pool"`, "tree imports pool"},
	{"nor below", "offloader/a.go", own + `events/ring"`, "offloader imports events/ring"},
	{"nor the device", "offloader/a.go", own + `gpu"`, "offloader imports gpu"},
	{"nor actors", "events/a.go", own + `actors"`, "events imports actors"},
	{"nor others", "pool/a.go", `import _ "github.com/zeebo/xxh3"`,
		"pool imports github.com/zeebo/xxh3"},
	{"a name alike is another folder", "tree/a.go", own + `windowsill"`, "tree imports windowsill"},
	{"published events are a core", "events/publish/a.go", `import _ "sync"`,
		"a core imports sync: a lock"},
	{"their sockets are none", "events/publish/wire/a.go", `import _ "net"`, ""},
	{"and use no library for it", "events/publish/wire/a.go", `import _ "github.com/go-zeromq/zmq4"`,
		"github.com/go-zeromq/zmq4 is for tests"},
	{"metrics use the library", "metrics/a.go",
		`import _ "github.com/prometheus/client_golang/prometheus"`, ""},
	{"the engine does not", "actors/a.go", `import _ "github.com/prometheus/client_golang/prometheus"`,
		"actors imports github.com/prometheus"},
	{"nor metrics themselves", "actors/a.go", own + `metrics"`, "actors imports metrics"},
	{"the engine knows no sockets", "actors/a.go", own + `events/publish/wire"`,
		"actors imports events/publish/wire"},
	{"the device uses messages", "gpu/sim/a.go", own + `messages"`, ""},
	{"attention uses windows", "gpu/attention/a.go", own + `windows"`, ""},
	{"the engine computes no attention", "actors/a.go", own + `gpu/attention"`,
		"actors imports gpu/attention"},
	{"hosts use the machine's memory", "cmd/demo/a.go", own + `gpu/host"`, ""},
	{"the engine opens no device", "actors/a.go", own + `gpu/host"`, "actors imports gpu/host"},
	{"nor does the root", "a.go", own + `gpu/host"`, ". imports gpu/host"},
	{"resources use the root", "windows/resources/a.go", `import _ "github.com/kvactor/kvactor"`, ""},
	{"not the other way round", "a.go", own + `windows/resources"`, ". imports windows/resources"},
	{"nor do the actors", "actors/a.go", own + `windows/resources"`,
		"actors imports windows/resources"},
	{"the machine's memory knows no windows", "gpu/host/a.go", own + `windows"`,
		"gpu/host imports windows"},
	{"nor does the device", "gpu/a.go", own + `gpu/attention"`, "gpu imports gpu/attention"},
	{"stores use messages", "offloader/stores/a.go", own + `messages"`, ""},
	{"stores lock", "offloader/stores/a.go", `import _ "sync"`, ""},
	{"stores use no core", "offloader/stores/a.go", own + `offloader"`,
		"offloader/stores imports offloader"},
	{"a store on Valkey", "offloader/stores/valkey/a.go", `import _ "github.com/valkey-io/valkey-go"`,
		""},
	{"only there", "offloader/stores/a.go", `import _ "github.com/valkey-io/valkey-go"`,
		"offloader/stores imports github.com/valkey-io/valkey-go"},
	{"the engine uses stores", "actors/a.go", own + `offloader/stores"`, ""},
	{"but none of those that exist", "actors/a.go", own + `offloader/stores/valkey"`,
		"actors imports offloader/stores/valkey"},
	{"no core uses stores", "offloader/a.go", own + `offloader/stores"`,
		"offloader imports offloader/stores"},
	{"hosts use attention", "cmd/demo/a.go", own + `gpu/attention"`, ""},
	{"not windows", "gpu/sim/a.go", own + `windows"`, "gpu/sim imports windows"},
	{"only cuda uses purego", "gpu/sim/a.go", `import _ "github.com/ebitengine/purego"`,
		"gpu/sim imports github.com/ebitengine/purego"},
	{"cuda uses purego", "gpu/cuda/a.go", `import _ "github.com/ebitengine/purego"`, ""},
	{"the mailbox knows no cores", "actors/mailbox/a.go", own + `messages"`,
		"actors/mailbox imports messages"},
	{"actors use protoactor", "actors/a.go", `import _ "github.com/asynkron/protoactor-go/actor"`, ""},
	{"actors print no tables", "actors/a.go", `import _ "github.com/olekukonko/tablewriter"`,
		"actors imports github.com/olekukonko/tablewriter"},
	{"actors take no profiles", "actors/a.go", `import _ "github.com/pkg/profile"`,
		"actors imports github.com/pkg/profile"},
	{"the coordinator's state is a core", "actors/coordinator/a.go", `import _ "sync"`,
		"a core imports sync"},
	{"and knows no library of actors", "actors/coordinator/a.go", own + `actors/mailbox"`,
		"actors/coordinator imports actors/mailbox"},
	{"actors lock", "actors/a.go", `import _ "sync"`, ""},
	{"a command is free", "cmd/demo/a.go", `import _ "github.com/spf13/cobra"`, ""},
	{"testify is for tests", "cmd/demo/a.go", `import _ "github.com/stretchr/testify/assert"`,
		"github.com/stretchr/testify/assert is for tests"},
	{"in tests it is right", "tree/a_test.go", `import _ "github.com/stretchr/testify/assert"`, ""},
	{"and in packages for them", "gpu/devicetest/a.go", `import _ "pgregory.net/rapid"`, ""},
	{"a test may import anything", "tree/a_test.go", own + `pool"`, ""},
	{"an unknown package", "misc/a.go", ``, "package misc has no place in the picture"},
	{"the root", "a.go", own + `actors"`, ""},
	{"the root knows no core", "a.go", own + `tree"`, ". imports tree"},
	{"no core knows the root", "tree/a.go", `import _ "github.com/kvactor/kvactor"`, "tree imports "},
	{"nor do the actors", "actors/a.go", `import _ "github.com/kvactor/kvactor"`, "actors imports "},
	{"cores log nothing", "tree/a.go", `import _ "log/slog"`, "a core imports log/slog: a log"},
	{"cores start nothing", "tree/a.go", `func f() { go f() }`, "a core starts a goroutine"},
	{"cores have no channels", "tree/a.go", `var c chan int`, "a core has a channel"},
	{"cores read no clock", "tree/a.go", "import clock \"time\"\nvar now = clock.Now",
		"a core reads the clock: clock.Now"},
	{"cores know durations", "tree/a.go", "import \"time\"\nvar d = time.Second", ""},
	{"tests of cores may", "tree/a_test.go", "import \"time\"\nfunc f() { go f(); time.Sleep(1) }",
		""},
	{"cuda is not in the default build", "actors/a.go", own + `gpu/cuda"`,
		"imports gpu/cuda in the default build"},
	{"not in a test either", "bench/a_test.go", own + `gpu/cuda"`,
		"imports gpu/cuda in the default build"},
	{"a long function", "tree/a.go", "func f() {" + strings.Repeat("\n", 70) + "}",
		"function f has 71 lines, at most 70"},
	{"a function at the limit", "tree/a.go", "func f() {" + strings.Repeat("\n", 69) + "}", ""},
	{"a comment without the name", "tree/a.go", "// opens it.\nfunc open() {}",
		`the comment of open begins with "opens"`},
	{"a comment with the name", "tree/a.go", "// open opens it.\nfunc open() {}", ""},
	{"a type's comment", "tree/a.go", "// The page of a pool.\ntype node struct{}",
		`the comment of node begins with "page"`},
	{"a type's article", "tree/a.go", "// A node is a block.\ntype node struct{}", ""},
	{"a group's comment", "tree/a.go", "// The limits.\nconst (\n\ta = 1\n\tb = 2\n)", ""},
	{"a constant's comment", "tree/a.go", "// At most so many.\nconst limit = 2",
		`the comment of limit begins with "At"`},
	{"a test's comment", "tree/a_test.go", "// Evicting twice is refused.\nfunc TestEvict() {}", ""},
	{"a directive", "tree/a.go", "//go:noinline\nfunc f() {}", ""},
	{"a long file", "tree/a.go", strings.Repeat("\n", 498), "501 lines, at most 500"},
	{"a file at the limit", "tree/a.go", strings.Repeat("\n", 497), ""},
}

func TestEveryRuleFires(t *testing.T) {
	for _, c := range rules {
		t.Run(c.name, func(t *testing.T) {
			expect(t, map[string]string{c.file: "// Package a does.\npackage a\n" + c.text + "\n"}, c.want)
		})
	}
}

func TestBuildTagsLetCUDAIn(t *testing.T) {
	const body = "// Package a does.\npackage a\nimport _ \"github.com/kvactor/kvactor/gpu/cuda\"\n"
	for tag, want := range map[string]string{
		"cuda":            "",
		"linux && cuda":   "",
		"!cuda":           "imports gpu/cuda in the default build",
		"linux || darwin": "imports gpu/cuda in the default build",
	} {
		t.Run(tag, func(t *testing.T) {
			expect(t, map[string]string{"bench/a.go": "//go:build " + tag + "\n\n" + body}, want)
		})
	}
}

func TestAPackageNeedsAComment(t *testing.T) {
	expect(t, map[string]string{"tree/a.go": "package tree\n",
		"tree/a_test.go": "// Package tree.\npackage tree\n"}, "tree: no package comment")
	expect(t, map[string]string{"tree/a.go": "package tree\n",
		"tree/doc.go": "// Package tree.\npackage tree\n"}, "")
	expect(t, map[string]string{"tree/a_test.go": "package tree\n"}, "")
}

// A type may have sixty methods, counted over all files of its package.
func TestATypeWithManyMethods(t *testing.T) {
	method := func(n int) string { return fmt.Sprintf("func (r *record) m%d() {}\n", n) }
	half := func(from int) string {
		text := "// Package tree.\npackage tree\n"
		for n := range 30 {
			text += method(from + n)
		}
		return text
	}
	files := map[string]string{"tree/a.go": half(0) + "type record struct{}\n", "tree/b.go": half(30)}
	expect(t, files, "")
	files["tree/b.go"] += method(60)
	expect(t, files, "tree.record has 61 methods, at most 60")
	files["tree/b_test.go"] = half(100)
	expect(t, files, "tree.record has 61 methods, at most 60")
}

// The methods of embedded types count, of other packages and through pointers, aliases
// and interfaces, too; a field with a name has its methods to itself.
func TestPromotedMethodsCount(t *testing.T) {
	methods := func(of string, n int) string {
		text := ""
		for i := range n {
			text += fmt.Sprintf("func (r *%s) %s%d() {}\n", of, of, i)
		}
		return text
	}
	const tree, pool = "// Package tree.\npackage tree\n", "// Package pool.\npackage pool\n"
	part := "type Part struct{ Deep }\ntype Deep[T any] struct{}\nfunc (Deep[T]) Part0() {}\n" +
		methods("Part", 40)
	for name, c := range map[string]struct{ files, want string }{
		"a struct in a struct": {tree + part + "type whole struct{ Part }\n" + methods("whole", 21),
			"tree.whole has 61 methods, at most 60"},
		"a pointer": {tree + part + "type whole struct{ *Part }\n" + methods("whole", 21),
			"tree.whole has 61 methods, at most 60"},
		"a type with arguments": {tree + part + "type whole struct{ Deep[int] }\n" + methods("whole", 60),
			"tree.whole has 61 methods, at most 60"},
		"at the limit": {tree + part + "type whole struct{ Part }\n" + methods("whole", 20), ""},
		"a field with a name": {tree + part + "type whole struct{ part Part }\n" + methods("whole", 60),
			""},
		"a name of its own": {tree + part +
			"type whole struct{ Part }\nfunc (w *whole) Part1() {}\n" + methods("whole", 20), ""},
		"one inside itself": {tree + "type whole struct{ *whole }\n" + methods("whole", 60), ""},
		"an alias": {tree + part + "type other = Part\ntype whole struct{ other }\n" +
			methods("whole", 21), "tree.whole has 61 methods, at most 60"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, map[string]string{"tree/a.go": c.files}, c.want) })
	}
	expect(t, map[string]string{
		"tree/a.go": tree + part,
		"internal/b.go": strings.ReplaceAll(pool, "pool", "internal") +
			"import other \"github.com/kvactor/kvactor/tree\"\ntype whole struct{ other.Part }\n" +
			methods("whole", 21),
	}, "internal.whole has 61 methods, at most 60")
}

// Package messages may export 95 names, counted over its files: types, functions,
// constants and variables, but no methods, nothing of its tests and of packages below.
func TestAPackageWithManyNames(t *testing.T) {
	constants := "const (\n"
	for i := range 92 {
		constants += fmt.Sprintf("\tName%d = iota\n", i)
	}
	const more = "type Type int\nfunc (Type) Method() {}\nvar Variable, variable int\nfunc Function() {}\n"
	files := map[string]string{
		"messages/a.go":           "// Package messages.\npackage messages\n" + constants + ")\n",
		"messages/b.go":           "package messages\n" + more,
		"messages/a_test.go":      "package messages\nconst Test = 1\n",
		"messages/inspect/doc.go": "// Package inspect.\npackage inspect\nconst Below = 1\n",
	}
	expect(t, files, "")
	files["messages/b.go"] += "const Last = 1\n"
	expect(t, files, "messages exports 96 names, at most 95")
}

// What a program has generated may be as long as that wants, and imports no more than others.
func TestGeneratedFiles(t *testing.T) {
	const generated = "// Code generated by a program. DO NOT EDIT.\n\n// Package wire does.\npackage wire\n"
	expect(t, map[string]string{"cmd/wire/a.go": generated + strings.Repeat("\n", 600)}, "")
	expect(t, map[string]string{"tree/a.go": generated + "import _ \"log/slog\"\n"},
		"a core imports log/slog: a log")
}

func TestFoldersThatHoldNoPackage(t *testing.T) {
	expect(t, map[string]string{"testdata/a.go": "package", "tree/testdata/a.go": "package",
		".git/a.go": "package", "_old/a.go": "package"}, "")
}

func TestAFileThatDoesNotParse(t *testing.T) {
	_, err := Check(fstest.MapFS{"tree/a.go": {Data: []byte("package")}}, module)
	require.Error(t, err)
}

func expect(t *testing.T, files map[string]string, want string) {
	t.Helper()
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	problems, err := Check(root, module)
	require.NoError(t, err)
	if want == "" {
		assert.Empty(t, problems)
		return
	}
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0], want)
}
