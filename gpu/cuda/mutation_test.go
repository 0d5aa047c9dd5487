//go:build linux && (amd64 || arm64)

package cuda

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// edit replaces a text that occurs once in a file.
type edit struct{ file, old, new string }

// mutation is a mistake that an imitation must catch.
type mutation struct {
	name  string
	edits []edit
}

// mutations are the fourteen mistakes that were found when the package was read
// against NVIDIA's headers, put back, and others that were planted.
var mutations = []mutation{
	{"1 streams are not asked for a capture", []edit{
		{"stream.go", "	if !st.external {\n		return nil\n	}\n	if err := s.do(fnStreamIsCapturing",
			"	if st.external || !st.external {\n		return nil\n	}\n	if err := s.do(fnStreamIsCapturing"}}},
	{"1 single copies after a capture error", []edit{
		{"copies.go", "		if r.sticky() || r.capture() {\n			return begun, q.failed(b, at,",
			"		if r.sticky() {\n			return begun, q.failed(b, at,"}}},
	{"1 single copies after a launch that a capture refuses", []edit{
		{"copies.go", "	if r.sticky() || r.capture() {\n		return launched, q.failed(b, 0,",
			"	if r.sticky() {\n		return launched, q.failed(b, 0,"}}},
	{"2 capture mode of the thread", []edit{
		{"session.go",
			"s.relaxed = s.d.driver.call(fnExchangeCaptureMode, address(&s.out.mode)) == success",
			"s.relaxed = false"}}},
	{"3 context is left current", []edit{
		{"session.go", "if r := s.call(fnCtxPopCurrent, address(&s.out.popped)); r != success {",
			"if r := success; r != success {"}}},
	{"4 pinning under the lock", []edit{
		{"pool.go", "	if err := p.create(s); err != nil {",
			"	d.mu.Lock()\n	err = p.create(s)\n	d.mu.Unlock()\n	if err != nil {"}}},
	{"4 draining under the lock", []edit{
		{"pool.go", "	events, err := p.d.quiesce(s)\n	p.d.mu.Unlock()\n",
			"	events, err := p.d.quiesce(s)\n	_ = s.await(events)\n	p.d.mu.Unlock()\n"}}},
	{"5 memory bound to a node", []edit{
		{"host.go", "const preferred, maxNode = 1, 64", "const preferred, maxNode = 2, 64"}}},
	{"6 host addresses taken for the device's", []edit{
		{"host.go", "h.pieces[i].device, h.pieces[i].region = s.out.number[0],",
			"h.pieces[i].device, h.pieces[i].region = uint64(address(&memory[0])),"}}},
	{"7 errors that end a context", []edit{
		{"errors.go", "		214, 220, 226,\n", "		214, 708,\n"}}},
	{"8 streams of the host destroyed", []edit{
		{"stream.go", "	if !st.external {\n		_ = s.do(fnStreamDestroy",
			"	if st.handle != 0 {\n		_ = s.do(fnStreamDestroy"}}},
	{"9 default streams", []edit{
		{"stream.go", "if handle <= perThreadStream {", "if handle > 1<<62 {"}}},
	{"10 a ticket whose event was not recorded", []edit{
		{"ticket.go", "	seq := st.last + 1\n", "	st.last++\n	seq := st.last\n"},
		{"ticket.go", "		return d.waitInstead(s, st, s.failure(fnEventRecord, r, st.String()))",
			"		return gpu.Ticket{}, s.failure(fnEventRecord, r, st.String())"}}},
	{"11 sticky errors swallowed", []edit{
		{"ticket.go", "				_ = s.failure(fnEventQuery, r, st.String()) // notes a lost device\n",
			"				_ = r\n"}}},
	{"12 refused copies left under way", []edit{
		{"copies.go", "if r := s.call(fnStreamSynchronize, st.handle); r != success && !r.capture() {",
			"if r := success; r != success {"}}},
	{"13 pages of 4096 bytes assumed", []edit{
		{"host.go", "unit := p.spec.PageBytes / gcd(p.spec.PageBytes, p.d.systemPage) * p.d.systemPage",
			"unit := p.spec.PageBytes / gcd(p.spec.PageBytes, 4096) * 4096"}}},
	{"14 a lasting refusal tried again", []edit{
		{"copies.go", "if r == notSupported || c.refusals >= maxRefusals {", "if c.refusals < 0 {"}}},
	{"planted: event of the wrong copy", []edit{
		{"ticket.go", "	return st.events[seq%ring]\n", "	return st.events[(seq+ring-1)%ring]\n"}}},
	{"planted: counter before the copies", []edit{
		{"submit.go", "	queued, failed := d.copies.submit(s, st, d.pools, b)\n",
			"	ticket, err := d.ticket(s, st)\n	queued, failed := d.copies.submit(s, st, d.pools, b)\n"},
		{"submit.go", "	ticket, err := d.ticket(s, st)\n	if failed != nil {\n		return ticket",
			"	if failed != nil {\n		return ticket"}}},
	{"planted: shrink without drain", []edit{
		{"pool.go", "	p.d.mu.Unlock()\n	if err == nil {\n		err = s.await(events)\n	}\n",
			"	p.d.mu.Unlock()\n	_ = events\n"}}},
	{"planted: the next number to occupy a stream", []edit{
		{"copies.go", "st.handle, at, uintptr(st.last), 0)",
			"st.handle, at, uintptr(st.last+1), 0)"}}},
	{"planted: a number of long ago to occupy a stream", []edit{
		{"copies.go", "st.handle, at, uintptr(st.last), 0)",
			"st.handle, at, 0, 0)"}}},
	{"planted: a write that no ticket covers", []edit{
		{"copies.go", "	begun := launched || q.occupy(s, st)\n",
			"	q.occupy(s, st)\n	begun := launched\n"}}},
	{"planted: close does not wait for streams of the host", []edit{
		{"device.go", "				_ = s.await([]uintptr{st.event(st.last)})\n", ""}}},
	{"planted: an event of a capture is asked for", []edit{
		{"stream.go", "	if err := s.notCaptured(event, on); err != nil {\n",
			"	if r := s.call(fnEventQuery, event); r != success && r != notReady {\n		return gpu.Ticket{}, s.failure(fnEventQuery, r, on)\n	}\n	if err := s.d.ending(); err != nil {\n"}}},
	{"planted: a list that is not emptied", []edit{
		{"kernel.go", "	defer k.clear()\n", ""}}},
	{"planted: host memory of the driver's refused", []edit{
		{"host.go", "(r == hostRegistered || r == invalidValue)", "r == hostRegistered"}}},
	{"planted: wrong symbol", []edit{
		{"driver.go", `{"cuMemcpyBatchAsync", true}`, `{"cuMemcpyBatchAsync_v2", true}`}}},
}

// apply returns the files that a mutation changes.
func (m mutation) apply(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, e := range m.edits {
		if _, read := files[e.file]; !read {
			text, err := os.ReadFile(e.file)
			require.NoError(t, err)
			files[e.file] = string(text)
		}
		require.Equal(t, 1, strings.Count(files[e.file], e.old), "%s: the text to replace in %s", m.name,
			e.file)
		files[e.file] = strings.Replace(files[e.file], e.old, e.new, 1)
	}
	return files
}

// TestMutations holds that each mutation still applies. With KVACTOR_MUTATIONS set
// it builds and tests the package with each of them, on the Go imitation and on
// that of ctest, and demands that one of the two fails; -v prints the table of
// docs/gpu.md. That takes some minutes.
//
//	KVACTOR_MUTATIONS=1 go test ./gpu/cuda -run TestMutations -v -timeout 1h
func TestMutations(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			files := m.apply(t)
			if os.Getenv("KVACTOR_MUTATIONS") == "" {
				return
			}
			flags := "-overlay=" + overlay(t, files)
			inGo := caught(t, flags, "go", "test", "-short", "-count=1", "-timeout=60s",
				"-skip=TestMutations", ".")
			inC := caught(t, flags, "ctest/run.sh")
			t.Logf("| %s | %s | %s |", m.name, inGo, inC)
			assert.NotEmpty(t, inGo+inC, "no imitation has caught it")
		})
	}
}

// overlay writes files for the -overlay flag of the go command.
func overlay(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	replace := map[string]string{}
	for name, text := range files {
		at, err := filepath.Abs(name)
		require.NoError(t, err)
		replace[at] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(replace[at], []byte(text), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// panickedTest finds the test that was running when a panic or the timeout ended
// the program.
var panickedTest = regexp.MustCompile(`(?:running tests:\s+|/cuda\.)(Test[^\s(.]+)`)

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// caught runs tests and names the test that fails, "" if none does. A mutation
// that does not compile would be caught by nothing.
func caught(t *testing.T, flags, name string, args ...string) string {
	t.Helper()
	run := exec.Command(name, args...)
	run.Env = append(os.Environ(), "GOFLAGS="+flags, "KVACTOR_MUTATIONS=", "SEEDS=1")
	out, err := run.CombinedOutput()
	if err == nil {
		return ""
	}
	require.NotContains(t, string(out), "[build failed]", "%s", out)
	found := failedTest.FindAllStringSubmatch(string(out), -1)
	if found == nil {
		require.Regexp(t, "panic: |SIG", string(out))
		running := panickedTest.FindStringSubmatch(string(out))
		require.NotNil(t, running, "%s", out)
		return running[1] + " (it panics or hangs)"
	}
	deepest := found[0][1]
	for _, f := range found {
		if strings.HasPrefix(f[1], deepest+"/") {
			deepest = f[1] // a case says more than its test
		}
	}
	return deepest
}
