//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a device can run the kernel. So that its text is tested everywhere, this file interprets
// the part of PTX that the text uses. Threads run one after the other, each to its end: the
// kernel exchanges nothing between them.

// ptxFunction computes a value. form has the class of each operand, the result's first: p a
// predicate, w 32 bits, d 64 bits, t the width that the instruction's name ends with.
type ptxFunction struct {
	form string
	f    func(a, b, c uint64) uint64
}

// ptxFunctions are by the name of the instruction, without the width at its end where t occurs.
var ptxFunctions = map[string]ptxFunction{
	"mov.u":        {"tt", func(a, _, _ uint64) uint64 { return a }},
	"mov.b":        {"tt", func(a, _, _ uint64) uint64 { return a }},
	"cvt.u64.u32":  {"dw", func(a, _, _ uint64) uint64 { return a }},
	"add.u":        {"ttt", func(a, b, _ uint64) uint64 { return a + b }},
	"sub.u":        {"ttt", func(a, b, _ uint64) uint64 { return a - b }},
	"min.u":        {"ttt", func(a, b, _ uint64) uint64 { return min(a, b) }},
	"and.b":        {"ttt", func(a, b, _ uint64) uint64 { return a & b }},
	"or.b":         {"ttt", func(a, b, _ uint64) uint64 { return a | b }},
	"shl.b":        {"ttw", func(a, b, _ uint64) uint64 { return a << b }},
	"shr.u":        {"ttw", func(a, b, _ uint64) uint64 { return a >> b }},
	"mul.lo.u":     {"ttt", func(a, b, _ uint64) uint64 { return a * b }},
	"mul.wide.u32": {"dww", func(a, b, _ uint64) uint64 { return a * b }},
	"mad.lo.u":     {"tttt", func(a, b, c uint64) uint64 { return a*b + c }},
	"setp.eq.u":    {"ptt", func(a, b, _ uint64) uint64 { return ptxFlag(a == b) }},
	"setp.lt.u":    {"ptt", func(a, b, _ uint64) uint64 { return ptxFlag(a < b) }},
	"setp.le.u":    {"ptt", func(a, b, _ uint64) uint64 { return ptxFlag(a <= b) }},
	"setp.gt.u":    {"ptt", func(a, b, _ uint64) uint64 { return ptxFlag(a > b) }},
	"setp.ge.u":    {"ptt", func(a, b, _ uint64) uint64 { return ptxFlag(a >= b) }},
}

func ptxFlag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// ptxLine is a decoded instruction. It is passed over when the slot guard has the value unless.
type ptxLine struct {
	text   string
	guard  int
	unless uint64
	run    func(g *ptxGrid)
}

// ptxSlot is where a thread has a register or a constant.
type ptxSlot struct {
	index int
	class byte
	set   bool // by a line above
}

// The first slots are the same in all functions.
const (
	slotTrue    = iota // what guards an instruction without predicate
	slotThreads        // of a block
	slotBlock
	slotThread
	slotBlocks
	slotList // the address of the parameter

	paramBase  = 0x160
	globalBase = 0x7F5A_0000_0000
	notSet     = 0xDEAD_BEEF_DEAD_BEEF // in registers at the start of a thread
)

// ptxEntry is a function, and what its decoder knows.
type ptxEntry struct {
	t          testing.TB
	name       string
	paramBytes int
	code       []ptxLine
	start      []uint64 // the slots of a thread before its first line
	line       string   // that is being decoded
	slots      map[string]*ptxSlot
	labels     map[string]int
}

// parseKernels decodes all functions of a module, in which each line is one statement.
func parseKernels(t testing.TB, module string) (entries []*ptxEntry) {
	for _, body := range strings.Split(module, ".visible")[1:] {
		head := kernelEntry.FindStringSubmatch(".visible" + body)
		require.NotNil(t, head, "%s", body)
		e := &ptxEntry{t: t, name: head[1], start: []uint64{slotTrue: 1, slotList: paramBase},
			labels: map[string]int{}, slots: map[string]*ptxSlot{
				"%ntid.x": {slotThreads, 'w', true}, "%ctaid.x": {slotBlock, 'w', true},
				"%tid.x":    {slotThread, 'w', true},
				"%nctaid.x": {slotBlocks, 'w', true}, "list": {slotList, 'd', true}}}
		e.paramBytes, _ = strconv.Atoi(head[2])
		_, body, _ = strings.Cut(body, "{")
		e.parse(body)
		entries = append(entries, e)
	}
	return entries
}

// expect ends the test unless ok, and names the line.
func (e *ptxEntry) expect(ok bool, format string, args ...any) {
	if !ok {
		e.t.Fatalf("%s: %q: %s", e.name, e.line, fmt.Sprintf(format, args...))
	}
}

func (e *ptxEntry) parse(body string) {
	var statements []string
	for _, line := range strings.Split(body, "\n") {
		line, _, _ = strings.Cut(line, "//")
		e.line = strings.TrimSpace(line)
		statement, ended := strings.CutSuffix(e.line, ";")
		if registers, is := strings.CutPrefix(statement, ".reg ."); is {
			e.expect(ended, "no semicolon")
			e.declare(registers)
		} else if label, is := strings.CutSuffix(e.line, ":"); is {
			e.expect(e.labels[label] == 0, "the label occurs twice")
			e.labels[label] = len(statements)
		} else if e.line != "" && e.line != "}" {
			e.expect(ended, "no semicolon")
			statements = append(statements, statement)
		}
	}
	for _, e.line = range statements {
		e.instruct()
	}
	e.expect(e.line == "ret", "the last line of the function")
}

// declare makes registers: "pred %more, %p<8>".
func (e *ptxEntry) declare(registers string) {
	kind, names, _ := strings.Cut(registers, " ")
	class, known := map[string]byte{"pred": 'p', "b32": 'w', "b64": 'd'}[kind]
	for _, name := range strings.Split(names, ", ") {
		stem, count, several := strings.Cut(strings.TrimSuffix(name, ">"), "<")
		n, _ := strconv.Atoi(count)
		for i := range max(n, 1) {
			if several {
				name = fmt.Sprint(stem, i)
			}
			e.expect(known && e.slots[name] == nil && strings.HasPrefix(name, "%"),
				"%s is declared twice, or of no known type", name)
			e.slots[name] = &ptxSlot{e.slot(notSet), class, false}
		}
	}
}

// slot makes a slot with a value that each thread starts with.
func (e *ptxEntry) slot(value uint64) int {
	e.start = append(e.start, value)
	return len(e.start) - 1
}

// written is the slot of a register that the line sets.
func (e *ptxEntry) written(name string, class byte) int {
	s := e.slots[name]
	e.expect(s != nil && s.class == class && s.index > slotList, "%s is no register of class %c", name,
		class)
	s.set = true
	return s.index
}

// read is the slot of a register or constant that the line reads.
func (e *ptxEntry) read(name string, class byte) int {
	s := e.slots[name]
	if s == nil {
		v, err := strconv.ParseUint(name, 10, map[byte]int{'p': 1, 'w': 32, 'd': 64}[class])
		e.expect(err == nil, "%s is neither a register nor a number of class %c", name, class)
		return e.slot(v)
	}
	e.expect(s.class == class && s.set, "%s is not of class %c, or no line above sets it", name, class)
	return s.index
}

var (
	ptxGuard = regexp.MustCompile(`^@(!?)(%\w+) (.*)$`)
	// ptxStored is a store, whose operands are the other way round.
	ptxStored = regexp.MustCompile(`^st(\.global\S*) (\[[^]]*\]), (.*)$`)
	ptxAccess = regexp.MustCompile(`^(ld|store)\.(param|global)(?:\.cs)?\.(u8|u32|u64|v4\.u32) (\{.+\}|%\w+), \[(%\w+)(?:\+(\d+))?\]$`)
)

// instruct decodes an instruction.
func (e *ptxEntry) instruct() {
	statement, line := e.line, ptxLine{text: e.line}
	if m := ptxGuard.FindStringSubmatch(statement); m != nil {
		line.guard, line.unless, statement = e.read(m[2], 'p'), ptxFlag(m[1] != ""), m[3]
	}
	name, rest, _ := strings.Cut(statement, " ")
	switch {
	case statement == "ret":
		line.run = func(g *ptxGrid) { g.next = math.MaxInt }
	case name == "bra":
		target, known := e.labels[rest]
		e.expect(known, "no such label")
		line.run = func(g *ptxGrid) { g.next = target }
	case strings.HasPrefix(name, "ld.") || strings.HasPrefix(name, "st."):
		line.run = e.access(statement)
	default:
		line.run = e.compute(name, strings.Split(rest, ", "))
	}
	e.code = append(e.code, line)
}

// compute decodes an instruction that computes a value.
func (e *ptxEntry) compute(name string, operands []string) func(*ptxGrid) {
	f, known := ptxFunctions[name]
	if !known && len(name) > 2 {
		f = ptxFunctions[name[:len(name)-2]]
		f.form = strings.ReplaceAll(f.form, "t",
			map[string]string{"32": "w", "64": "d"}[name[len(name)-2:]])
	}
	e.expect(f.form != "" && len(operands) == len(f.form), "unknown instruction, or not its operands")
	var from [3]int
	for i, operand := range operands[1:] {
		from[i] = e.read(operand, f.form[i+1])
	}
	to, mask := e.written(operands[0], f.form[0]),
		map[byte]uint64{'p': 1, 'w': math.MaxUint32, 'd': math.MaxUint64}[f.form[0]]
	return func(g *ptxGrid) {
		g.slots[to] = f.f(g.slots[from[0]], g.slots[from[1]], g.slots[from[2]]) & mask
	}
}

// ptxTypes are those of loads and stores, with the class of the registers.
var ptxTypes = map[string]struct {
	registers, width int
	class            byte
}{"u8": {1, 1, 'w'}, "u32": {1, 4, 'w'}, "u64": {1, 8, 'd'}, "v4.u32": {4, 4, 'w'}}

// access decodes a load or store.
func (e *ptxEntry) access(statement string) func(*ptxGrid) {
	m := ptxAccess.FindStringSubmatch(ptxStored.ReplaceAllString(statement, "store$1 $3, $2"))
	e.expect(m != nil, "unknown load or store")
	kind, names := ptxTypes[m[3]], strings.Split(strings.Trim(m[4], "{}"), ", ")
	e.expect(len(names) == kind.registers, "not the registers of the access")
	register, mark := e.written, ptxSource
	if m[1] == "store" {
		register, mark = e.read, ptxDestination
	}
	base, space := e.read(m[5], 'd'), map[string]int{"param": 0, "global": 1}[m[2]]
	offset, _ := strconv.ParseUint(m[6], 10, 64)
	var of []int // slots, by byte
	for _, name := range names {
		of = append(of, slices.Repeat([]int{register(name, kind.class)}, kind.width)...)
	}
	return func(g *ptxGrid) {
		b, marks := g.memory[space].at(g, g.slots[base]+offset, uint64(len(of)), mark)
		for i, slot := range of {
			shift := i % kind.width * 8
			if mark == ptxDestination {
				b[i], marks[i] = byte(g.slots[slot]>>shift), ptxWritten
			} else {
				g.slots[slot] = g.slots[slot]&(1<<shift-1) | uint64(b[i])<<shift
			}
		}
	}
}

// ptxMark says what may be done with a byte.
type ptxMark uint8

const (
	ptxSource      ptxMark = iota + 1
	ptxDestination         // not yet written
	ptxWritten
)

// ptxMemory is an address space.
type ptxMemory struct {
	base  uint64 // the address of its first byte
	bytes []byte
	marks []ptxMark // of each byte
}

// at is for an aligned access to n bytes that all have the mark.
func (m *ptxMemory) at(g *ptxGrid, address, n uint64, mark ptxMark) ([]byte, []ptxMark) {
	g.accesses[mark]++
	at := address - m.base
	ok := address%n == 0 && at < uint64(len(m.bytes)) && n <= uint64(len(m.bytes))-at
	for i := uint64(0); ok && i < n; i++ {
		ok = m.marks[at+i] == mark
	}
	if !ok {
		g.fail("%d bytes at %#x are not aligned, or not all %s", n, address,
			map[ptxMark]string{ptxSource: "in a source",
				ptxDestination: "in a destination and not yet written"}[mark])
	}
	return m.bytes[at : at+n], m.marks[at : at+n]
}

// ptxGrid is a launch.
type ptxGrid struct {
	t        testing.TB
	entry    *ptxEntry
	memory   [2]ptxMemory        // the parameter's and the global one
	slots    []uint64            // of the thread that runs
	line     int                 // that it runs
	next     int                 // the line that it runs then
	accesses [ptxWritten + 1]int // by mark
	most     int                 // stores of one thread
}

func (g *ptxGrid) fail(format string, args ...any) {
	s := g.slots
	g.t.Fatalf("%s: %q: block %d of %d, thread %d of %d, shift %d: %s", g.entry.name,
		g.entry.code[g.line].text,
		s[slotBlock], s[slotBlocks], s[slotThread], s[slotThreads], g.memory[0].bytes[4],
		fmt.Sprintf(format, args...))
}

// run runs all threads.
func (g *ptxGrid) run(blocks, threads uint64) {
	for i := range blocks * threads {
		copy(g.slots, g.entry.start)
		copy(g.slots[slotThreads:], []uint64{threads, i / threads, i % threads, blocks})
		before := g.accesses[ptxDestination]
		g.next = 0
		for steps := 0; g.next < len(g.entry.code); steps++ {
			g.line, g.next = g.next, g.next+1
			if l := &g.entry.code[g.line]; g.slots[l.guard] != l.unless {
				l.run(g)
			}
			if steps > 4<<20 {
				g.fail("no end")
			}
		}
		g.most = max(g.most, g.accesses[ptxDestination]-before)
	}
}

// ptxTask is a list of pieces in a memory.
type ptxTask struct {
	name   string
	pieces lists
	memory ptxMemory
	want   []byte // the memory afterwards
	stores int
}
