package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// TestSoak has many sessions ask a daemon for everything at random, and end in every way, while
// processes that write are stopped and killed. No match has a page of another prompt or salt, and
// all files are closed in the end. KVACTOR_SOAK=10m has a thousand sessions for so long, in place
// of a hundred for two seconds, and watches that memory and files do not grow.
func TestSoak(t *testing.T) {
	length, sessions := 2*time.Second, 100
	text, long := os.LookupEnv("KVACTOR_SOAK")
	if long {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
		sessions = 1000
	}
	socket := filepath.Join(t.TempDir(), "s")
	d := daemonAt(t, socket)
	watcher := dial(t, socket)
	memory, err := watcher.Opened.Pools[0].Map()
	require.NoError(t, err)
	before := d.sample(t)
	s := &soak{socket: socket, pages: pages{memory, int(watcher.Opened.Pools[0].PageBytes)}}
	var running sync.WaitGroup
	for i := range sessions {
		running.Go(func() { s.sessions(rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	running.Go(s.processes)
	samples := d.watch(t, length)
	s.stop()
	running.Wait()
	assert.Empty(t, s.wrong)
	within(t, "all is given back", func() bool { return statsOf(t, watcher).GetSessions() == 1 })
	within(t, "all files are closed", func() bool { return d.sample(t).files <= before.files })
	assert.Contains(t, statsOf(t, watcher).GetJson(), `"Used":0`)
	t.Logf("%d sessions, %d at a time, %d steps", s.opened, sessions, s.steps)
	t.Logf("refused: %v", s.refused)
	for i, x := range samples {
		t.Logf("after %v: %d files, %d KiB", length*time.Duration(i+1)/soakSamples, x.files, x.kib)
	}
	if long {
		early, late := most(samples[:soakSamples/2]), most(samples[soakSamples/2:])
		assert.LessOrEqual(t, late.files, early.files+sessions/5)
		assert.LessOrEqual(t, late.kib, early.kib*5/4)
	}
	assert.Equal(t, 0, d.end(syscall.SIGTERM), d.log.String())
	assert.NotContains(t, d.log.String(), "panic")
}

// soakSamples is how often a soak looks at the daemon.
const soakSamples = 20

// sample is what the daemon takes: open files, and memory that is not shared.
type sample struct{ files, kib int }

func (p *process) sample(t *testing.T) (x sample) {
	folder := fmt.Sprintf("/proc/%d/", p.Process.Pid)
	files, err := os.ReadDir(folder + "fd")
	require.NoError(t, err)
	status, err := os.ReadFile(folder + "status")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(status), "RssAnon:")
	require.True(t, found, "%s", status)
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return sample{len(files), kib}
}

// watch takes samples of the daemon, the last one at the end of the time.
func (p *process) watch(t *testing.T, length time.Duration) (list []sample) {
	for range soakSamples {
		time.Sleep(length / soakSamples)
		list = append(list, p.sample(t))
	}
	return list
}

func most(list []sample) (x sample) {
	for _, y := range list {
		x = sample{max(x.files, y.files), max(x.kib, y.kib)}
	}
	return x
}

func statsOf(t *testing.T, c *wire.Client) *wire.StatsAnswer {
	answer, err := c.Do(&wire.Request{Op: &wire.Request_Stats{Stats: &wire.StatsRequest{}}})
	require.NoError(t, err)
	return answer.GetStats()
}

// pages is the memory of the daemon's pages.
type pages struct {
	memory []byte
	bytes  int
}

func (p pages) of(page int32) []byte { return p.memory[int(page)*p.bytes : int(page+1)*p.bytes] }

// soak is what all sessions of a soak share.
type soak struct {
	socket string
	pages  pages

	mu            sync.Mutex
	stopped       bool
	opened, steps int
	refused       map[string]int // by code
	wrong         []string
}

func (s *soak) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

func (s *soak) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// fail notes what may not be. The first few are enough.
func (s *soak) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) < 10 {
		s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
	}
}

// served tells whether an entry was served, and counts it if it was refused for a reason that
// a busy daemon may have.
func (s *soak) served(what string, e *wire.Error) bool {
	if e == nil {
		return true
	}
	if !slices.Contains([]string{"out_of_pages", "busy", "deadline"}, e.GetCode()) {
		s.fail("%s: %v", what, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = map[string]int{}
	}
	s.refused[e.GetCode()]++
	return false
}

// sessions opens one session after the other until the soak is over.
func (s *soak) sessions(r *rand.Rand) {
	for !s.over() {
		c, err := open(s.socket)
		if err != nil {
			s.fail("open: %v", err)
			return
		}
		x := &soaked{soak: s, Client: c, r: r}
		steps := 1 + r.IntN(50)
		for range steps {
			if s.over() || !x.step() {
				break
			}
			time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		}
		x.end()
		s.mu.Lock()
		s.opened++
		s.steps += steps
		s.mu.Unlock()
	}
}

// processes starts a process that writes, stops it in the middle, and kills it, again and again.
func (s *soak) processes() {
	for !s.over() {
		p := &process{Cmd: exec.Command(os.Args[0], s.socket)}
		p.Env = append(os.Environ(), runClient+"=1")
		p.Stderr = &p.log
		if err := p.Start(); err != nil {
			s.fail("start: %v", err)
			return
		}
		for i := 0; i < 1000 && !strings.Contains(p.log.String(), "half written"); i++ {
			time.Sleep(10 * time.Millisecond)
		}
		_ = p.Process.Signal(syscall.SIGSTOP)
		time.Sleep(200 * time.Millisecond)
		_ = p.Process.Kill()
		if _ = p.Wait(); p.ProcessState.ExitCode() != -1 {
			s.fail("a client ended by itself: %s", p.log.String())
		}
	}
}

// soaked is a session of a soak.
type soaked struct {
	*soak
	*wire.Client
	r      *rand.Rand
	claims []uint64
	writes []*soakWrite
	pins   []uint64
}

// soakWrite is a write, of whose blocks some are written.
type soakWrite struct {
	handle  uint64
	prompt  soakPrompt
	written int
}

// soakPrompt is a prompt of whole blocks. Prompts of a family share a beginning.
type soakPrompt struct {
	salt   string
	tokens []int32
}

func (x *soaked) prompt() soakPrompt {
	p := soakPrompt{salt: []string{"", "a", "b"}[x.r.IntN(3)]}
	family, branch, fork := x.r.Int32N(100), x.r.Int32N(3), 1+x.r.IntN(6)
	for i := range (1 + x.r.IntN(8)) * block {
		token := family<<16 | int32(i)
		if i >= fork*block {
			token |= branch << 8
		}
		p.tokens = append(p.tokens, token)
	}
	return p
}

func (p soakPrompt) wire() *wire.Prompt {
	return &wire.Prompt{Salt: p.salt, Tokens: wire.PackTokens(p.tokens)}
}

// longer is the prompt with a token more, all of whose blocks can be matched.
func (p soakPrompt) longer() *wire.Prompt {
	return &wire.Prompt{Salt: p.salt, Tokens: wire.PackTokens(append(slices.Clip(p.tokens), 1))}
}

// contents is what the page of a block begins and ends with: a hash of all that it depends on.
func (p soakPrompt) contents(b int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.salt))
	_, _ = h.Write(wire.PackTokens(p.tokens[:(b+1)*block]))
	return fmt.Sprintf("%016x", h.Sum64())
}

// fill writes the pages of blocks from first on.
func (x *soaked) fill(p soakPrompt, first int, packed []byte) {
	for b, page := range wire.UnpackPages(packed) {
		if page >= 0 {
			text, bytes := p.contents(first+b), x.pages.of(page)
			copy(bytes, text)
			copy(bytes[len(bytes)-len(text):], text)
		}
	}
}

// check compares the pages of a match.
func (x *soaked) check(p soakPrompt, m *wire.Matched) {
	list := [][]byte{nil}
	if m.GetTokens() > 0 {
		list = m.GetPages()
	}
	found := wire.UnpackPages(list[0])
	if len(found) != int(m.GetTokens())/block {
		x.fail("%d pages of %d tokens", len(found), m.GetTokens())
	}
	for b, page := range found {
		want, bytes := p.contents(b), x.pages.of(page)
		first, last := string(bytes[:len(want)]), string(bytes[len(bytes)-len(want):])
		if first != want || last != want {
			x.fail("block %d has %q and %q, not %q", b, first, last, want)
		}
	}
}

// step sends a message with entries of every kind and takes their answers. It returns false if
// the session is over.
func (x *soaked) step() bool {
	in, prompts, reserved := &wire.Step{}, []soakPrompt{}, []soakPrompt{}
	ended := x.ends(in)
	for range x.r.IntN(3) {
		prompts = append(prompts, x.prompt())
		in.Matches = append(in.Matches, &wire.Match{Prompt: prompts[len(prompts)-1].longer()})
	}
	for range x.r.IntN(2) {
		reserved = append(reserved, x.prompt())
		in.Reserves = append(in.Reserves, &wire.Reserve{Prompt: reserved[len(reserved)-1].wire()})
	}
	x.others(in)
	out, err := x.Step(in)
	if err != nil {
		x.fail("step: %v", err)
		return false
	}
	for i, done := range out.GetWritten() {
		if x.served("written", done.GetError()) {
			ended[i].written = int(in.GetWritten()[i].GetTokens()) / block
		}
	}
	for i, m := range out.GetMatches() {
		if x.served("match", m.GetError()) && m.GetHandle() > 0 {
			x.check(prompts[i], m)
			x.claims = append(x.claims, m.GetHandle())
		}
	}
	for i, w := range out.GetReserves() {
		if x.served("reserve", w.GetError()) && w.GetHandle() > 0 {
			x.fill(reserved[i], 0, w.GetPages()[0])
			stored := int(w.GetTokens()) / block
			x.writes = append(x.writes, &soakWrite{w.GetHandle(), reserved[i], stored})
		}
	}
	for _, p := range out.GetPins() {
		if x.served("pin", p.GetError()) {
			x.pins = append(x.pins, p.GetPin())
		}
	}
	return x.asks()
}

// ends says what is written, and releases what is held. It returns the writes of in.Written.
func (x *soaked) ends(in *wire.Step) (written []*soakWrite) {
	for _, w := range x.writes {
		if all := len(w.prompt.tokens) / block; w.written < all && x.r.IntN(2) == 0 {
			n := w.written + 1 + x.r.IntN(all-w.written)
			entry := &wire.Written{Handle: w.handle, Tokens: uint32(n * block)}
			in.Written, written = append(in.Written, entry), append(written, w)
		}
	}
	x.writes = slices.DeleteFunc(x.writes, func(w *soakWrite) bool {
		ends := x.r.IntN(4) == 0
		if ends {
			in.Releases = append(in.Releases, w.handle)
		}
		return ends
	})
	n := x.r.IntN(len(x.claims) + 1)
	in.Releases, x.claims = append(in.Releases, x.claims[:n]...), x.claims[n:]
	if len(x.pins) > 2 {
		in.Unpins, x.pins = x.pins, nil
	}
	return written
}

// others adds entries whose answers are not looked at.
func (x *soaked) others(in *wire.Step) {
	switch p := x.prompt(); x.r.IntN(20) {
	case 0, 1, 2:
		in.Lookups = append(in.Lookups, p.wire())
	case 3:
		in.Pins = append(in.Pins, p.longer())
	case 4:
		in.Prefetches = append(in.Prefetches, p.wire())
	case 5:
		in.Invalidates = append(in.Invalidates, &wire.Selector{Prefix: p.wire()})
	case 6:
		in.Invalidates = append(in.Invalidates, &wire.Selector{Salt: "a"})
	}
}

// asks sends one of the requests that are no step, now and then.
func (x *soaked) asks() bool {
	r := &wire.Request{}
	switch x.r.IntN(100) {
	case 0, 1, 2:
		r.Op = &wire.Request_Stats{Stats: &wire.StatsRequest{}}
	case 3, 4, 5:
		r.Op = &wire.Request_Events{Events: &wire.EventsRequest{}}
	case 6:
		r.Op = &wire.Request_Reset_{Reset_: &wire.ResetRequest{}}
	default:
		return true
	}
	_, err := x.Do(r)
	var refused *wire.Error
	if errors.As(err, &refused) { // events have so many readers and no more
		x.served("request", refused)
		return true
	}
	if err != nil {
		x.fail("request: %v", err)
	}
	return err == nil
}

// end ends the session in one of the ways in which clients do.
func (x *soaked) end() {
	conn := x.Conn()
	switch x.r.IntN(6) {
	case 0:
		_, _ = x.Do(&wire.Request{Op: &wire.Request_Close{Close: &wire.Close{}}})
	case 1:
		_, _ = conn.Write([]byte{200, 0, 0, 0, 8}) // the first byte of two hundred
	case 2:
		_, _ = conn.Write(append([]byte{8, 0, 0, 0}, "garbage!"...))
	case 3: // asks for more than it reads
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		frame, _ := wire.Append(nil, &wire.Request{
			Op: &wire.Request_Stats{Stats: &wire.StatsRequest{}},
		})
		_, _ = conn.Write(slices.Repeat(frame, 1000))
		time.Sleep(time.Duration(x.r.IntN(1000)) * time.Millisecond)
	}
	_ = x.Close()
}
